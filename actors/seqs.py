"""Each partition counts the writes of its rows. A count that is lower than one that we saw before means that Redis has
lost writes that it had acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class SeqBook:
    """The highest counts that were seen. Mirror and Leases write it, each on its own thread.

    `on_lost` gets a partition of which acknowledged writes are gone.
    """

    def __init__(self, on_lost: Callable[[int], None]) -> None:
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._known: dict[int, int] = {}
        self._written: dict[int, int] = {}  # as the Mirror's own connection was told: these only grow

    def granted(self, partition: int, seq: int) -> None:
        """A partition has become ours; what others did to it before is not known here."""
        with self._lock:
            self._known[partition] = seq
            self._written.pop(partition, None)

    def known(self, partition: int) -> int:
        """The count that it must have at least: look before a renewal is sent."""
        with self._lock:
            return self._known.get(partition, 0)

    def renewed(self, partition: int, seq: int, known: int) -> bool:
        """A renewal told the count; `known` is what was known before it was sent. False where writes are lost."""
        lost = seq < known
        with self._lock:
            if lost:
                self._known[partition] = self._written[partition] = seq
                self._on_lost(partition)
            elif seq > self._known.get(partition, 0):
                self._known[partition] = seq
        return not lost

    def written(self, counts: Iterable[tuple[int, int, bool]]) -> None:
        """Writes were acknowledged with these counts, in the order of the replies: partition, count, and whether it was
        written before (so that it did not count once more)."""
        lost: set[int] = set()
        with self._lock:
            for partition, seq, dup in counts:
                if seq + dup <= self._written.get(partition, 0):
                    lost.add(partition)
                    self._known[partition] = seq
                elif seq > self._known.get(partition, 0):
                    self._known[partition] = seq
                self._written[partition] = seq
            # Told before anybody can hear of the new count: what is remembered is not forgotten meanwhile.
            for partition in lost:
                self._on_lost(partition)
