"""Who is alive: a heartbeat per worker in one hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import redis

from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import decoded_fields
from stepwell.store.scripts import Scripts

__all__ = ["WORKER_TTL_MS", "Heartbeat", "WorkerRegistry", "heartbeats_of", "living_of"]

Heartbeat: TypeAlias = dict[str, Any]

WORKER_TTL_MS: Final = 10_000

# After a day a silent worker's heartbeat is litter, not news.
_FORGET_MS: Final = 86_400_000


class WorkerRegistry:
    """Heartbeats: JSON objects with `at`, the shared clock's ms when each was made. Raises as Link does."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._hash = keys.workers

    def beat(self, worker_id: str, heartbeat: bytes) -> None:
        """Records a worker's heartbeat."""
        self._link.call([["HSET", self._hash, worker_id, heartbeat]])

    def remove(self, worker_id: str) -> None:
        """Forgets a worker that leaves."""
        self._link.call([["HDEL", self._hash, worker_id]])

    def living(self, now_ms: int, ttl_ms: int = WORKER_TTL_MS) -> list[Heartbeat]:
        """Heartbeats not older than `ttl_ms`, by worker id, each with its `id`; what is none is passed over."""
        return living_of(self._all(), now_ms, ttl_ms)

    def forget_silent(self, now_ms: int) -> int:
        """Removes heartbeats older than a day; returns how many."""
        silent = [worker_id for worker_id, beat in self._all().items() if now_ms - beat["at"] > _FORGET_MS]
        if silent:
            self._link.call([["HDEL", self._hash, *silent]])
        return len(silent)

    def _all(self) -> dict[str, Heartbeat]:
        (raw,) = self._link.call([["HGETALL", self._hash]])
        return heartbeats_of(raw)


def heartbeats_of(raw: object) -> dict[str, Heartbeat]:
    """The heartbeats in a reply to HGETALL, by worker id; what is none is passed over."""
    beats = decoded_fields(raw, Heartbeat).items()
    return {worker_id: {"id": worker_id, **beat} for worker_id, beat in beats if type(beat.get("at")) is int}


def living_of(beats: Mapping[str, Heartbeat], now_ms: int, ttl_ms: int = WORKER_TTL_MS) -> list[Heartbeat]:
    """Those heartbeats that are not older than `ttl_ms`, by worker id."""
    return [beat for _, beat in sorted(beats.items()) if now_ms - beat["at"] <= ttl_ms]
