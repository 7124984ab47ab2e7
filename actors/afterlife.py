"""Executions that left memory a moment ago, as they were acknowledged: what Redis loses of them can be restored.

A server with `appendfsync everysec` may lose its last second or two. Who has left memory is therefore kept until a
renewal was sent at least `KEEP_SECONDS` later and found nothing missing: while Redis is away nobody is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from stepwell.core.checkpoint import Checkpoint

KEEP_SECONDS: Final = 3.0
KEEP_MAX: Final = 20_000


class _Left(msgspec.Struct):
    """`at`: when it left, in monotonic seconds; its last acknowledgement was before that."""

    checkpoint: Checkpoint
    partition: int
    at: float


class Afterlife:
    """Plain data, used on the scheduler's thread only. Past `KEEP_MAX` executions the first ones go early."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, _Left] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def keep(self, partition: int, checkpoint: Checkpoint, now: float) -> None:
        """An execution leaves memory; the row holds exactly this checkpoint."""
        self._left[checkpoint.execution_id] = _Left(checkpoint, partition, now)
        self._left.move_to_end(checkpoint.execution_id)
        if len(self._left) > KEEP_MAX:
            self._left.popitem(last=False)

    def restored(self, execution_id: str, now: float) -> None:
        """Its row was written again, and may be lost again."""
        left = self._left.get(execution_id)
        if left is not None:
            left.at = now
            self._left.move_to_end(execution_id)

    def settled(self, sent: float) -> None:
        """A renewal that was sent then (monotonic seconds) found nothing missing."""
        while self._left:
            execution_id, left = next(iter(self._left.items()))
            if left.at > sent - KEEP_SECONDS:
                return
            del self._left[execution_id]

    def newer(self, execution_id: str, rev: int) -> Checkpoint | None:
        """What the row was, if that is newer than the revision that is stored (-1: no row)."""
        left = self._left.get(execution_id)
        return left.checkpoint if left is not None and left.checkpoint.rev > rev else None

    def forget(self, execution_id: str) -> None:
        """It is back in memory, and its actor remembers it."""
        self._left.pop(execution_id, None)

    def partition_lost(self, partition: int) -> None:
        """Somebody else writes these rows: what we remember of them is of no use."""
        for execution_id in self.of(partition):
            del self._left[execution_id]

    def of(self, partition: int) -> list[str]:
        """Who is kept of one partition."""
        return [execution_id for execution_id, left in self._left.items() if left.partition == partition]
