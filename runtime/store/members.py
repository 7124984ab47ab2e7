"""The members of a namespace: one short entry per shard, looked at twice a second by all of them."""

from __future__ import annotations

from typing import Final

import msgspec
import redis

from stepwell.core.ownership import Member
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import decoded_fields, time_us
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["Members", "Roll", "members_of"]

# After an hour a silent member's entry is litter: a shard that comes back writes a new one.
_FORGET_MS: Final = 3_600_000


class Roll(msgspec.Struct, frozen=True):
    """All entries at one moment of the server; entries that nobody can read are not among them."""

    server_ms: int
    members: dict[str, Member]


class Members:
    """Raises LinkDown or StoreRefused (for now) as Link does, and StoreError where the key holds something else."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._hash = keys.shards

    def beat(self, shard_id: str, member: Member) -> None:
        """Says that a shard lives, and in which state it is."""
        self._link.call([["HSET", self._hash, shard_id, msgspec.json.encode(member)]])

    def leave(self, *shard_ids: str) -> None:
        """Takes shards off: they have left, or their death is known. Their partitions are the others' from now on."""
        if shard_ids:
            self._link.call([["HDEL", self._hash, *shard_ids]])

    def read(self) -> Roll:
        """Who is there, with the server's time."""
        ask: list[Command] = [["TIME"], ["HGETALL", self._hash]]
        time, raw = self._link.call(ask)
        return Roll(time_us(time) // 1000, members_of(raw))

    def forget_silent(self) -> int:
        """Takes off who has been silent for an hour; returns how many."""
        roll = self.read()
        silent = [each for each, member in roll.members.items() if roll.server_ms - member.at > _FORGET_MS]
        self.leave(*silent)
        return len(silent)


def members_of(raw: object) -> dict[str, Member]:
    """The entries in a reply to HGETALL, by shard; what is none is passed over."""
    return decoded_fields(raw, Member)
