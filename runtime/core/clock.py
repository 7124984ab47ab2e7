"""What a clock is. The rules never read one: time reaches them inside events."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings of one time line; real clocks live with the processes, virtual ones with the tests."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch on the clock that all workers of a namespace share, rounded up.

        Rounded up so that `due = now + delay` is never before the delay has really passed.
        """
        ...

    def moved_since(self, at_ms: int) -> int:
        """By how many ms the time line was moved since it read `at_ms`, as far as this clock was there: set forward
        (positive), it says that more time has passed since then than really has."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; only differences mean something."""
        ...
