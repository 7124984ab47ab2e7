"""How fast a crowd is let in: some at once, then ever more."""

from __future__ import annotations

import math

__all__ = ["Ramp"]

_DOUBLINGS_MAX = 40.0


class Ramp:
    """Within t seconds after a crowd began to come at most `burst * 2 ** (t / doubling)` are let in.

    A crowd is over when nobody was let in for `rest` seconds. All times are monotonic seconds, given by the caller.
    """

    def __init__(self, burst: int, doubling: float, rest: float) -> None:
        self._burst = burst
        self._doubling = doubling
        self._rest = rest
        self._began = 0.0
        self._last = -math.inf
        self._let_in = 0

    def take(self, now: float) -> bool:
        """Let one in, if one more may come now."""
        if now - self._last > self._rest:
            self._began = now
            self._let_in = 0
        doublings = min(_DOUBLINGS_MAX, (now - self._began) / self._doubling)
        # A hair more, so that at `next_at` itself rounding does not say no.
        if self._let_in + 1 > self._burst * 2**doublings + 1e-6:
            return False
        self._let_in += 1
        self._last = now
        return True

    @property
    def next_at(self) -> float:
        """From when on one more may come, after `take` said no."""
        return self._began + self._doubling * math.log2((self._let_in + 1) / self._burst)
