"""Series of a sheet, as those who count have them."""

from __future__ import annotations

import math
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from stepwell.core.clock import Clock
from stepwell.metrics.sheetlayout import MARK, MARK_SIZE, SIZE

__all__ = ["MARK_SECONDS", "Count", "Level", "Marks", "SharedCount", "SharedSpread", "Spread"]

MARK_SECONDS: Final = 0.1
"""An exemplar stays for so long at least: in a storm the newest ones are not worth their writing."""
ID_BYTES_MAX: Final = 128


class Count:
    """One series of a counter. For one thread: the one that counts.

    The hottest paths may write `count.numbers[count.at] += 1` themselves, which saves the call.
    """

    __slots__ = ("_marks", "at", "numbers")

    def __init__(self, numbers: memoryview[float], at: int, marks: Marks | None) -> None:
        self.numbers = numbers
        self.at = at
        self._marks = marks

    def inc(self, n: float = 1, execution: str = "") -> None:
        """So many more. `execution`: the id to remember it by, where the instrument has exemplars."""
        self.numbers[self.at] += n
        if execution and self._marks is not None:
            self._marks.mark(0, n, execution)


class Spread:
    """One series of a histogram. For one thread: the one that observes.

    Exemplars are kept for the upper half of the buckets: those of what was slow, or took many.
    """

    __slots__ = ("_bounds", "_marked_from", "_marks", "_sum_at", "at", "numbers")

    def __init__(self, numbers: memoryview[float], at: int, marks: Marks | None, bounds: tuple[float, ...]) -> None:
        self.numbers = numbers
        self.at = at
        self._marks = marks
        self._bounds = bounds
        self._marked_from = (len(bounds) + 1) // 2  # of the buckets
        self._sum_at = at + len(bounds) + 1

    def observe(self, value: float, execution: str = "") -> None:
        """Count a value; a bucket holds what equals its bound."""
        numbers = self.numbers
        bucket = bisect_left(self._bounds, value)
        numbers[self.at + bucket] += 1
        numbers[self._sum_at] += value
        if bucket >= self._marked_from and execution and self._marks is not None:
            self._marks.mark(bucket, value, execution)


class Level:
    """One series of a gauge; absent until it is set. From any thread: the last one wins."""

    __slots__ = ("at", "numbers")

    def __init__(self, numbers: memoryview[float], at: int) -> None:
        self.numbers = numbers
        self.at = at

    def set(self, value: float) -> None:
        """It is so much now."""
        self.numbers[self.at] = value

    def clear(self) -> None:
        """There is no value any more."""
        self.numbers[self.at] = math.nan


class SharedCount:
    """A `Count` for any thread, at the price of a lock."""

    __slots__ = ("_count", "_lock")

    def __init__(self, count: Count, lock: threading.Lock) -> None:
        self._count = count
        self._lock = lock

    def inc(self, n: float = 1, execution: str = "") -> None:
        """So many more."""
        with self._lock:
            self._count.inc(n, execution)

    def reach(self, total: float) -> None:
        """It has counted so much by now, if that is more than it had: for what something else counts."""
        with self._lock:
            numbers, at = self._count.numbers, self._count.at
            numbers[at] = max(numbers[at], total)


class SharedSpread:
    """A `Spread` for any thread, at the price of a lock."""

    __slots__ = ("_lock", "_spread")

    def __init__(self, spread: Spread, lock: threading.Lock) -> None:
        self._spread = spread
        self._lock = lock

    def observe(self, value: float, execution: str = "") -> None:
        """Count a value."""
        with self._lock:
            self._spread.observe(value, execution)


class Marks:
    """The exemplars of one series: which execution was counted last there. A cell is made when it is first needed.
    `trace` tells the id of an execution's trace in hex, empty where it is not traced."""

    __slots__ = ("_cells", "_clock", "_make", "_trace")

    def __init__(self, make: Callable[[int], memoryview], clock: Clock, trace: Callable[[str], str]) -> None:
        self._make = make
        self._clock = clock
        self._trace = trace
        self._cells: dict[int, tuple[memoryview, float]] = {}

    def mark(self, bucket: int, value: float, execution: str) -> None:
        """Remember it, unless the one before is still new."""
        now = self._clock.monotonic()
        known = self._cells.get(bucket)
        if known is None:
            cell = self._make(bucket)
        else:
            cell, before = known
            if now - before < MARK_SECONDS:
                return
        self._cells[bucket] = (cell, now)
        name = execution.encode(errors="replace")
        if len(name) > ID_BYTES_MAX:
            return
        trace = bytes.fromhex(self._trace(execution))
        raw = MARK.pack(0, len(name), value, self._clock.now_ms() / 1000, name, trace)
        cell[:MARK_SIZE] = SIZE.pack(zlib.crc32(memoryview(raw)[SIZE.size :])) + raw[SIZE.size :]
