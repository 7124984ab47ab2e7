"""Inbox entries that are under way: since when somebody works on them, for as long as they are not applied.

What waits for room (`Admission`) is not among them: it counts from when it is let in. So a backlog of starts neither
looks like an inbox that is stuck nor hides one.
"""

from __future__ import annotations

import heapq
from collections.abc import Container

__all__ = ["Unapplied"]


class Unapplied:
    """The dispatcher writes it, the reader asks; each operation is one on a dict, so no lock is needed."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], int] = {}
        self.lag = 0.0
        """Age in seconds of the oldest entry that is neither applied nor held back, as of the reader's last count."""

    def begin(self, partition: int, entry_id: str, since_ms: int) -> None:
        """Somebody works on that entry from that moment on; if somebody did before, from then."""
        self._since.setdefault((partition, entry_id), since_ms)

    def done(self, partition: int, entry_id: str) -> None:
        """It is applied, buried, or not there any more."""
        self._since.pop((partition, entry_id), None)

    def lost(self, partition: int) -> None:
        """The partition is not ours any more."""
        for key in [each for each in list(self._since) if each[0] == partition]:
            self._since.pop(key, None)

    def oldest(self, most: int, among: Container[int]) -> list[tuple[int, int, str]]:
        """Those of some partitions that are longest under way, at most so many: since when (ms), partition, entry."""
        entries = list(self._since.items())
        return heapq.nsmallest(most, [(since, *key) for key, since in entries if key[0] in among])
