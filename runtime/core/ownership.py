"""Who should own which partition, and which members of the namespace live: pure rules.

Rendezvous hashing: each partition goes to the member with the highest score for it. A member that joins takes only
what it wins, one that leaves gives up only what it had; nothing else moves, and nobody has to agree on anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from stepwell.core.formats import FORMAT_MAX
from stepwell.core.records import Ms

__all__ = ["ACTIVE", "LEAVING", "Member", "Roster", "State", "newest", "next_rev", "owner_of", "owners", "worker_of"]

State = Literal["active", "leaving"]
ACTIVE: Final = "active"
LEAVING: Final = "leaving"
BLIND_SECONDS: Final = 1.0
REVS_OF_A_GRANT: Final = 1000


class Member(msgspec.Struct, frozen=True):
    """What a shard says of itself. `at`: the server's ms when it did; `host`: its process; `parent`: the process that
    looks into its death, '' for none (both `host,boot,pid,start`); `format`: the newest format that it reads."""

    at: Ms
    incarnation: str
    host: str
    state: State = ACTIVE
    parent: str = ""
    format: Annotated[int, msgspec.Meta(ge=1, le=FORMAT_MAX)] = 1


def newest(formats: Mapping[str, int]) -> frozenset[str]:
    """Among which members, by the newest format that each reads, the partitions are shared: who reads less than another
    one stands by, or it would be given what it can't read."""
    best = max(formats.values(), default=0)
    return frozenset(each for each, found in formats.items() if found == best)


def next_rev(rev: int, epoch: int) -> int:
    """The revision after `rev` that the owner under this grant writes: no two grants write the same one, and a later
    grant the higher one. So where Redis forgot a grant and an earlier owner wrote once more, the later one sees that
    the row is older than what it knows."""
    first = epoch * REVS_OF_A_GRANT
    return rev + 1 if rev >= first else first


def worker_of(shard_id: str) -> str:
    """The worker that a shard belongs to: shards are named `<worker>/<index>`."""
    worker, _, _ = shard_id.rpartition("/")
    return worker or shard_id


@lru_cache(maxsize=4096)
def _scores(shard_id: str, partitions: int) -> tuple[bytes, ...]:
    """The member's score for each partition; kept, as members come and go one at a time."""
    member = hashlib.blake2b(shard_id.encode(), digest_size=8)
    found = []
    for partition in range(partitions):
        hashed = member.copy()
        hashed.update(b"\0%d" % partition)
        found.append(hashed.digest())
    return tuple(found)


def owner_of(partition: int, members: Collection[str], partitions: int) -> str | None:
    """Who should own the partition; None where there is no member."""
    return max(members, key=lambda each: (_scores(each, partitions)[partition], each), default=None)


def owners(partitions: int, members: Iterable[str]) -> dict[int, str]:
    """Who should own what; empty where there is no member."""
    some = sorted(members)
    if not some:
        return {}
    best = [(score, some[0]) for score in _scores(some[0], partitions)]
    for each in some[1:]:
        for partition, score in enumerate(_scores(each, partitions)):
            if (score, each) > best[partition]:
                best[partition] = (score, each)
    return {partition: member for partition, (_, member) in enumerate(best)}


class Roster:
    """Which members live. A member is silent when what it says has not changed for a TTL, as seen by our own clock.

    Only at first sight its age is told by the server's: so a step of the server's clock makes nobody die, and lets no
    dead one live on. Time in which we could not look (of a gap all but `BLIND_SECONDS`) is counted against nobody:
    whoever was cut off together with us has to be heard first.
    """

    def __init__(self, ttl_seconds: float) -> None:
        self._ttl = ttl_seconds
        self._members: dict[str, Member] = {}
        self._left: dict[str, float] = {}
        self._seen_at: float | None = None

    def saw(self, members: Mapping[str, Member], server_ms: int, now: float) -> None:
        """Take over what was read, at the server's time and at that monotonic second."""
        passed = self._ttl if self._seen_at is None else min(now - self._seen_at, BLIND_SECONDS)
        left: dict[str, float] = {}
        for shard_id, member in members.items():
            known = self._members.get(shard_id)
            if known is not None and (known.at, known.incarnation) == (member.at, member.incarnation):
                left[shard_id] = self._left[shard_id] - passed
                continue
            # A change was made since the last look; who is new may have said this long ago.
            oldest = self._ttl if known is None else passed
            left[shard_id] = self._ttl - min(max(0.0, (server_ms - member.at) / 1000), oldest)
        self._left = left
        self._members = dict(members)
        self._seen_at = now

    def get(self, shard_id: str) -> Member | None:
        """What that member said last; None once it has left or was taken off."""
        return self._members.get(shard_id)

    def living(self) -> dict[str, Member]:
        """The members that were not silent at the last look."""
        return {each: member for each, member in self._members.items() if self._left[each] > 0}
