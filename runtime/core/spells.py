"""Which turns of a trouble are told: its begin and its end; of one that comes and goes no more than once.

A server that is full to the brim takes a write, refuses the next, and so on for hours. Pure: the caller brings the time
(monotonic seconds). Not for several threads at once.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["CALM_SECONDS", "Begin", "Spells"]

CALM_SECONDS: Final = 30.0
"""A trouble that is back within this time is the same one; then it is over when it has stayed away for as long."""


class Begin(Enum):
    """What there is to tell of a failure."""

    NEW = "it has begun"
    RESTLESS = "it is back after a moment: from now on nothing is told until it is over for good"
    KNOWN = "nothing"


class Spells:
    """One trouble's spells."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._restless = False
        self._good_since: float | None = None
        self._last: tuple[float, float] | None = None  # the begin and the end that were told last

    @property
    def lasts(self) -> bool:
        """Whether its begin was told, and its end is still to be."""
        return self._since is not None

    def fails(self, now: float) -> Begin:
        """It has failed."""
        self._good_since = None
        if self._since is not None:
            return Begin.KNOWN
        self._restless = self._last is not None and now - self._last[1] < CALM_SECONDS
        self._since = self._last[0] if self._last is not None and self._restless else now
        return Begin.RESTLESS if self._restless else Begin.NEW

    def works(self, now: float) -> float | None:
        """It has not failed. How long the trouble has lasted, where its end is to be told now."""
        if self._since is None:
            return None
        if self._good_since is None:
            self._good_since = now
        if self._restless and now - self._good_since < CALM_SECONDS:
            return None
        since, self._since = self._since, None
        self._last = None if self._restless else (since, now)
        return self._good_since - since
