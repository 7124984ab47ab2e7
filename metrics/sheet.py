"""A sheet: the numbers of one process, written with plain assignments where its parent can read them at any moment.

What was counted before a SIGKILL is in the sheet, and whoever reads it asks and stops nobody.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final, Generic, Self, TypeVar

from stepwell.actors.kit.clock import SystemClock
from stepwell.core.clock import Clock
from stepwell.metrics.folding import Names
from stepwell.metrics.instruments import Instrument, Kind
from stepwell.metrics.segments import FileSegments, MemorySegments, Segments, make_file
from stepwell.metrics.sheetlayout import (
    CELL,
    HEADER_SIZE,
    MARK,
    MARK_SIZE,
    PRINTS,
    RECORD,
    SEGMENT_SIZE,
    SIZE,
    SKIP,
    cells_of,
    check,
    padded,
)

__all__ = ["Count", "Level", "SharedCount", "SharedSpread", "Sheet", "Spread"]

MARK_SECONDS: Final = 0.1
"""An exemplar stays for so long at least: in a storm the newest ones are not worth their writing."""
ID_BYTES_MAX: Final = 128


class Count:
    """One series of a counter. For one thread: the one that counts.

    The hottest paths may write `count.numbers[count.at] += 1` themselves, which saves the call.
    """

    __slots__ = ("_marks", "at", "numbers")

    def __init__(self, numbers: memoryview, at: int, marks: Marks | None) -> None:
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

    __slots__ = ("_bounds", "_marks", "_sum_at", "at", "numbers")

    def __init__(self, numbers: memoryview, at: int, marks: Marks | None, bounds: tuple[float, ...]) -> None:
        self.numbers = numbers
        self.at = at
        self._marks = marks
        self._bounds = bounds
        self._sum_at = at + len(bounds) + 1

    def observe(self, value: float, execution: str = "") -> None:
        """Count a value; a bucket holds what equals its bound."""
        numbers = self.numbers
        bucket = bisect_left(self._bounds, value)
        numbers[self.at + bucket] += 1
        numbers[self._sum_at] += value
        if execution and self._marks is not None and bucket * 2 >= len(self._bounds):
            self._marks.mark(bucket, value, execution)


class Level:
    """One series of a gauge; absent until it is set. From any thread: the last one wins."""

    __slots__ = ("at", "numbers")

    def __init__(self, numbers: memoryview, at: int) -> None:
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
    """The exemplars of one series: which execution was counted last there. A cell is made when it is first needed."""

    __slots__ = ("_cells", "_clock", "_make")

    def __init__(self, make: Callable[[int], memoryview], clock: Clock) -> None:
        self._make = make
        self._clock = clock
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
        raw = MARK.pack(0, len(name), value, self._clock.now_ms() / 1000, name)
        cell[:MARK_SIZE] = SIZE.pack(zlib.crc32(memoryview(raw)[SIZE.size :])) + raw[SIZE.size :]


S = TypeVar("S")


class _Shelf(Generic[S]):
    """Series of one kind that were made, by instrument and label values."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.known: dict[tuple[int, tuple[str, ...]], S] = {}


class Sheet:
    """What one process counts. Series are made by any thread, at their first mention, and stay.

    A value outside its label's closed set counts as `other`, also names from code beyond `PAIRS_MAX`. A series is
    either for one thread or shared: asked for both ways, it is refused.
    """

    def __init__(self, segments: Segments, clock: Clock | None = None) -> None:
        self._segments = segments
        self._clock = SystemClock() if clock is None else clock
        self._names = Names()
        self._lock = threading.Lock()
        self._counts_lock = threading.Lock()
        self._bytes = segments.grow()
        self._numbers = self._bytes.cast("d")
        self._at = HEADER_SIZE
        self._made = 0
        self._counts: _Shelf[Count] = _Shelf(Kind.COUNTER)
        self._spreads: _Shelf[Spread] = _Shelf(Kind.HISTOGRAM)
        self._levels: _Shelf[Level] = _Shelf(Kind.GAUGE)
        self._shared_counts: _Shelf[SharedCount] = _Shelf(Kind.COUNTER)
        self._shared_spreads: _Shelf[SharedSpread] = _Shelf(Kind.HISTOGRAM)

    @classmethod
    def create(cls, path: Path, clock: Clock | None = None) -> Self:
        """An empty sheet in a new file; an older one there is replaced. `read_file` reads it.

        Raises:
            OSError: the file can't be made.
        """
        os.close(make_file(path))
        return cls.open(path, clock)

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None) -> Self:
        """The sheet that was made at `path` for this process.

        Raises:
            OSError: there is none.
        """
        return cls(FileSegments(path), clock)

    @classmethod
    def in_memory(cls, clock: Clock | None = None) -> Self:
        """A sheet for this process alone."""
        return cls(MemorySegments(), clock)

    @property
    def segments(self) -> Segments:
        """Where it lies."""
        return self._segments

    def count(self, instrument: Instrument, *values: str) -> Count:
        """The counter's series of these label values, for one thread.

        Raises:
            ValueError: the instrument is of another kind or none of ours, has other labels, or the series is shared.
        """
        found = self._counts.known.get((id(instrument), values))
        return found or self._series(self._counts, instrument, values, self._new_count, self._shared_counts.known)

    def shared_count(self, instrument: Instrument, *values: str) -> SharedCount:
        """The same for any thread."""
        found = self._shared_counts.known.get((id(instrument), values))
        return found or self._series(
            self._shared_counts,
            instrument,
            values,
            lambda *named: SharedCount(self._new_count(*named), self._counts_lock),
            self._counts.known,
        )

    def spread(self, instrument: Instrument, *values: str) -> Spread:
        """The histogram's series of these label values, for one thread. Raises as `count` does."""
        found = self._spreads.known.get((id(instrument), values))
        return found or self._series(self._spreads, instrument, values, self._new_spread, self._shared_spreads.known)

    def shared_spread(self, instrument: Instrument, *values: str) -> SharedSpread:
        """The same for any thread."""
        found = self._shared_spreads.known.get((id(instrument), values))
        return found or self._series(
            self._shared_spreads,
            instrument,
            values,
            lambda *named: SharedSpread(self._new_spread(*named), self._counts_lock),
            self._spreads.known,
        )

    def level(self, instrument: Instrument, *values: str) -> Level:
        """The gauge's series of these label values, for any thread. Raises as `count` does."""
        found = self._levels.known.get((id(instrument), values))
        return found or self._series(self._levels, instrument, values, self._new_level, ())

    def _series(
        self,
        shelf: _Shelf[S],
        instrument: Instrument,
        values: tuple[str, ...],
        make: Callable[[Instrument, tuple[str, ...]], S],
        otherwise: Container[tuple[int, tuple[str, ...]]],
    ) -> S:
        """Made at its first mention. What is folded is looked up by what it was folded to, so that nothing grows."""
        if instrument.kind is not shelf.kind or id(instrument) not in PRINTS:
            raise ValueError(f"{instrument.full_name} is no {shelf.kind.value} of INSTRUMENTS")
        with self._lock:
            key = (id(instrument), self._names.fold(instrument, values))
            found = shelf.known.get(key)
            if found is None:
                if key in otherwise:
                    raise ValueError(f"{instrument.full_name}{key[1]} is counted by one thread and by many")
                found = shelf.known[key] = make(instrument, key[1])
            return found

    def _new_count(self, instrument: Instrument, values: tuple[str, ...]) -> Count:
        numbers, at, marks = self._define(instrument, values, 0.0)
        return Count(numbers, at, marks)

    def _new_spread(self, instrument: Instrument, values: tuple[str, ...]) -> Spread:
        numbers, at, marks = self._define(instrument, values, 0.0)
        return Spread(numbers, at, marks, instrument.bounds)

    def _new_level(self, instrument: Instrument, values: tuple[str, ...]) -> Level:
        numbers, at, _ = self._define(instrument, values, math.nan)
        return Level(numbers, at)

    def _define(
        self, instrument: Instrument, values: tuple[str, ...], first: float
    ) -> tuple[memoryview, int, Marks | None]:
        number = self._made
        text = "\0".join(values).encode()
        start = self._append(text, 0, PRINTS[id(instrument)], cells_of(instrument) * CELL, first)
        self._made += 1
        marks = Marks(lambda bucket: self._new_mark(number, bucket), self._clock) if instrument.exemplars else None
        return self._numbers, start // CELL, marks

    def _new_mark(self, series: int, bucket: int) -> memoryview:
        with self._lock:
            start = self._append(b"", 1 + bucket, series, MARK_SIZE, 0.0)
            return self._bytes[start : start + MARK_SIZE]

    def _append(self, text: bytes, bucket: int, subject: int, cells_size: int, first: float) -> int:
        """A record more; where its cells begin in the present segment. Its size is written last."""
        cells_at = RECORD.size + padded(len(text))
        size = padded(cells_at + cells_size)
        if self._at + size > SEGMENT_SIZE:
            if self._at < SEGMENT_SIZE:
                SIZE.pack_into(self._bytes, self._at, SKIP)
            self._bytes = self._segments.grow()
            self._numbers = self._bytes.cast("d")
            self._at = 0
        at = self._at
        head = RECORD.pack(size, len(text), bucket, check(text, bucket, subject), subject)
        self._bytes[at + SIZE.size : at + RECORD.size] = head[SIZE.size :]
        self._bytes[at + RECORD.size : at + RECORD.size + len(text)] = text
        if first:
            self._numbers[(at + cells_at) // CELL] = first
        SIZE.pack_into(self._bytes, at, size)
        self._at = at + size
        return at + cells_at
