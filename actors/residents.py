"""Executions in memory that only rest, and which of them should leave: where there are too many, or after a while."""

from __future__ import annotations

__all__ = ["Residents"]


class Residents:
    """Who rests since when, those that rest longest first. `most` bounds all in memory, `rest_max` (seconds) a rest.

    Whoever was told to leave and is still here (what is due in a moment stays) is not told again before its next rest.
    """

    def __init__(self, most: int, rest_max: float) -> None:
        self._most = most
        self._rest_max = rest_max
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._since)

    def rests(self, execution_id: str, now: float) -> None:
        """It has nothing to do from that monotonic second on."""
        self._since.pop(execution_id, None)
        self._since[execution_id] = now

    def gone(self, execution_id: str) -> None:
        """It has something to do, or has left memory."""
        self._since.pop(execution_id, None)
        self._told.discard(execution_id)

    def too_many(self, in_memory: int) -> list[str]:
        """Who should leave so that of so many in memory only as many as may be are left."""
        excess = in_memory - self._most - len(self._told)
        return [self._tell(next(iter(self._since))) for _ in range(min(excess, len(self._since)))]

    def too_long(self, now: float) -> list[str]:
        """Who has rested long enough."""
        leavers: list[str] = []
        while self._since:
            execution_id, since = next(iter(self._since.items()))
            if since + self._rest_max > now:
                break
            leavers.append(self._tell(execution_id))
        return leavers

    def _tell(self, execution_id: str) -> str:
        del self._since[execution_id]
        self._told.add(execution_id)
        return execution_id
