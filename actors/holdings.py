"""Which partitions this shard owns, and until when it may act on that. Written by Leases, read by all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from stepwell.actors.unapplied import Unapplied
from stepwell.store.leases import Grant


class Holdings:
    """Grants by partition. A lease counts from the *sending* of the last good renewal, minus a margin."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._grants: dict[int, Grant] = {}
        self._until: dict[int, float] = {}
        self._since: dict[int, float] = {}
        self._lock = threading.Lock()
        self.unapplied = Unapplied()
        """Entries of our inboxes that are under way."""
        self.standing: frozenset[int] = frozenset()
        """Unrecovered partitions of which nothing is in memory, as there is no room for what they have waiting. Written
        by the dispatcher."""

    def hold(self, grant: Grant, until: float) -> None:
        """Own the partition; act on it until that monotonic second."""
        with self._lock:
            self._until[grant.partition] = until
            self._since[grant.partition] = self._monotonic()
            self._grants[grant.partition] = grant

    def extend(self, partition: int, until: float) -> None:
        """A renewal succeeded."""
        with self._lock:
            if partition in self._grants:
                self._until[partition] = until

    def drop(self, partition: int) -> Grant | None:
        """Own it no longer."""
        with self._lock:
            self._until.pop(partition, None)
            self._since.pop(partition, None)
            return self._grants.pop(partition, None)

    def recovered(self, partition: int) -> float | None:
        """Nothing is left of which its last owner's end may have interrupted a step. How many seconds ago it became
        ours; None if that was known before."""
        with self._lock:
            grant = self._grants.get(partition)
            if grant is None or grant.clean:
                return None
            self._grants[partition] = replace(grant, clean=True, boxed=False)
            return self._monotonic() - self._since[partition]

    def unrecovered(self) -> list[int]:
        """Partitions of which that is not known yet."""
        return [grant.partition for grant in self.grants() if not grant.clean]

    def lease(self, partition: int) -> str | None:
        """The lease value that fences writes; None if the partition is not ours."""
        grant = self._grants.get(partition)
        return None if grant is None else grant.value

    def grant(self, partition: int) -> Grant | None:
        """The grant itself."""
        return self._grants.get(partition)

    def may_act(self, partition: int) -> bool:
        """Whether a step body may start now: the lease can't have lapsed."""
        return self._until.get(partition, 0.0) > self._monotonic()

    def grants(self) -> list[Grant]:
        """All grants."""
        with self._lock:
            return list(self._grants.values())

    def partitions(self) -> list[int]:
        """All partitions that are ours."""
        with self._lock:
            return sorted(self._grants)
