"""The clocks. No other module of the product reads real time."""

from __future__ import annotations

import bisect
import functools
import math
import threading
import time
from collections.abc import Callable
from math import ceil

__all__ = ["SystemClock", "VirtualClock", "deadline_in", "monotonic"]

_SLEW = 0.1
_LAG_MS_MAX = 10_000
# Smaller moves are noted together: delays may be off by so much.
_MOVE_MS = 100
_MOVES_MAX = 10_000


def _monotonic() -> Callable[[], float]:
    """The monotonic clock that also counts while the host is suspended, where there is one (Linux).

    Leases lapse and delays pass meanwhile; `time.monotonic` of Linux would stand still.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is not None:
        read = functools.partial(time.clock_gettime, clock)
        try:
            read()
        except OSError:  # a kernel, or a sandbox, without it
            return time.monotonic
        return read
    return time.monotonic


_MONOTONIC = _monotonic()


def monotonic() -> float:
    """Seconds on that clock, the same for all processes of the host."""
    return _MONOTONIC()


def deadline_in(seconds: float) -> float:
    """That many seconds from now on the clock that user code reads: `time.monotonic()`."""
    return time.monotonic() + seconds


class SystemClock:
    """Monotonic time plus an offset to the Redis server's clock, so that all workers share one time line.

    The host's wall clock is read once, at construction; stepping it later changes nothing. Until the first `sync`
    the time line is the host's.
    """

    def __init__(
        self,
        read_monotonic: Callable[[], float] = _MONOTONIC,
        read_wall: Callable[[], float] = time.time,
    ) -> None:
        self.monotonic = read_monotonic
        self._lock = threading.Lock()
        self._offset_ms = (read_wall() - read_monotonic()) * 1000
        self._synced_at: float | None = None
        self._latest_ms = 0
        self._moves: list[tuple[int, float]] = [(0, 0.0)]  # (reading before it, sum of all moves with this one)
        self._unnoted_ms = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch on the shared time line, rounded up; never less than an earlier reading."""
        # Not locked, for it is read several times a step: two threads that race differ by what passed between them.
        now = ceil(self.monotonic() * 1000 + self._offset_ms)
        if now <= self._latest_ms:
            return self._latest_ms
        self._latest_ms = now
        return now

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        """Take over the server's time (`server_ms`), which was asked for and received at those monotonic seconds.

        The first call sets the offset and may step `now_ms` either way: make it before anything is stamped.
        Later ones move the offset no further than they prove it wrong, as a slow answer does not tell when on its way
        it was given, and by at most a tenth of the time since the call before; only one that finds us more than 10 s
        behind (this host stood still, or the server's clock was set forward) goes there at once, as a worker that
        began now would.

        No delay gets shorter by that: timers count `monotonic` seconds from when they were armed, and for what is
        loaded from its row later `moved_since` tells what is to be added.
        """
        measured = server_ms - (sent_monotonic + received_monotonic) / 2 * 1000
        # Between these the offset lies: the time was read on the way, and cut to whole milliseconds.
        lower, upper = server_ms - received_monotonic * 1000, server_ms + 1 - sent_monotonic * 1000
        with self._lock:
            if self._synced_at is None:
                self._offset_ms = measured
                self._latest_ms = 0
            else:
                behind = max(lower - self._offset_ms, min(0.0, upper - self._offset_ms))
                most = max(0.0, received_monotonic - self._synced_at) * 1000 * _SLEW
                self._move(behind if behind > _LAG_MS_MAX else min(most, max(-most, behind)))
            self._synced_at = received_monotonic

    def moved_since(self, at_ms: int) -> int:
        """By how many ms the time line was moved (forward: positive) since it read `at_ms`; its own course apart."""
        with self._lock:
            before = bisect.bisect_left(self._moves, (at_ms,)) - 1
            return round(self._moves[-1][1] - self._moves[max(0, before)][1])

    def _move(self, by_ms: float) -> None:
        self._unnoted_ms += by_ms
        if abs(self._unnoted_ms) >= _MOVE_MS:
            reads = max(self._latest_ms, math.ceil(self.monotonic() * 1000 + self._offset_ms))
            self._moves.append((reads, self._moves[-1][1] + self._unnoted_ms))
            self._unnoted_ms = 0.0
            if len(self._moves) > _MOVES_MAX:
                del self._moves[: _MOVES_MAX // 2]
        self._offset_ms += by_ms


class VirtualClock:
    """A clock that moves only when told to. `monotonic()` starts at 0."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._seconds = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, rounded up."""
        # Rounded to the nanosecond first: 0.1 + 0.2 is 300 ms, not 301.
        return self._start_ms + math.ceil(round(self._seconds * 1000, 6))

    def moved_since(self, at_ms: int) -> int:
        """It is never moved: 0."""
        return 0

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self.advance_to(self._seconds + seconds)

    def advance_to(self, monotonic: float) -> None:
        """Move forward until `monotonic()` gives exactly this; it must not lie in the past."""
        if not self._seconds <= monotonic < math.inf:
            raise ValueError(f"a clock goes forward: it is at {self._seconds} s, asked to go to {monotonic} s")
        self._seconds = monotonic
