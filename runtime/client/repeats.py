"""Whether a request that failed is sent again, and after how long: by what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redis.exceptions import AuthenticationError

from stepwell.core.errors import StoreError
from stepwell.store.link import StoreRefused
from stepwell.store.troubles import is_silence, kind_of

__all__ = ["FAILOVER_SECONDS", "REPEAT_AFTER", "Repeats", "growing"]

# Waits before a request whose reply was lost is sent again, in seconds; then the error is the caller's.
REPEAT_AFTER: Final = (0.05, 0.2, 0.5)
# What a cluster refuses while a slot moves, or a master has just come back.
_SOON_OVER: Final = frozenset({"TRYAGAIN", "CLUSTERDOWN"})
# What a server refuses that has just lost its role to another one: each try may find the new primary.
_FAILOVER: Final = frozenset({"readonly", "loading"})
FAILOVER_SECONDS: Final = 5.0
"""So long a failover is waited for."""
_PAUSE_MAX: Final = 1.0


class Repeats:
    """Of one request that is harmless to repeat.

    Args:
        met: whether this server has answered before. What says nothing at all may be no Redis: one try is enough.
        within: seconds that the caller has, where a failover would be waited for longer.
    """

    def __init__(self, met: bool = True, within: float | None = None) -> None:
        self._met = met
        self._left = FAILOVER_SECONDS if within is None else min(within, FAILOVER_SECONDS)
        self._few = iter(REPEAT_AFTER)
        self._many = growing(REPEAT_AFTER[0], _PAUSE_MAX)

    def pause(self, error: StoreError) -> float | None:
        """Seconds to wait before the next try; None where the error is the caller's."""
        if kind_of(error) in _FAILOVER or (isinstance(error, StoreRefused) and error.kind == "MASTERDOWN"):
            pause = min(next(self._many), self._left)
            self._left -= pause
            return pause if pause > 0 else None
        if isinstance(error, StoreRefused):
            return next(self._few, None) if error.kind in _SOON_OVER else None
        if isinstance(error.__cause__, AuthenticationError) or (not self._met and is_silence(error)):
            return None
        return next(self._few, None)


def growing(first: float, most: float) -> Iterator[float]:
    """Pauses that double, up to `most`."""
    while True:
        yield first
        first = min(first * 2, most)
