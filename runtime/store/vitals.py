"""What the shards say of their work: one short entry per shard in the hash `ns:vitals`."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell.core.vitals import Vitals
from stepwell.store.link import Link
from stepwell.store.replies import decoded_fields, fields_of

__all__ = ["VitalsStore", "vitals_of"]

# Nobody shows what is older; a shard that comes back writes a new entry.
_FORGET_MS: Final = 3_600_000


class VitalsStore:
    """Raises LinkDown or StoreRefused (for now) as Link does, and StoreError where the key holds something else."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._hash = link.keys.vitals

    def tell(self, shard_id: str, vitals: Vitals) -> None:
        """Say how a shard is."""
        self._link.call([["HSET", self._hash, shard_id, msgspec.json.encode(vitals)]])

    def leave(self, *shard_ids: str) -> None:
        """Take shards' entries off."""
        if shard_ids:
            self._link.call([["HDEL", self._hash, *shard_ids]])

    def forget_silent(self, now_ms: int) -> int:
        """Take off what shards said more than an hour ago, and what is no entry; returns how many."""
        (raw,) = self._link.call([["HGETALL", self._hash]])
        living = vitals_of(raw)
        silent = [each for each in fields_of(raw) if each not in living or now_ms - living[each].at > _FORGET_MS]
        self.leave(*silent)
        return len(silent)


def vitals_of(raw: object) -> dict[str, Vitals]:
    """The entries in a reply to HGETALL, by shard; what is none is passed over."""
    return decoded_fields(raw, Vitals)
