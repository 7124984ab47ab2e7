"""A sheet: the numbers of one process, written with plain assignments where its parent can read them at any moment.

What was counted before a SIGKILL is in the sheet, and whoever reads it asks and stops nobody.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Generic, Self, TypeVar

from stepwell.actors.kit.clock import SystemClock
from stepwell.core.clock import Clock
from stepwell.metrics.folding import Names
from stepwell.metrics.instruments import Instrument, Kind
from stepwell.metrics.segments import FileSegments, MemorySegments, Segments, Source
from stepwell.metrics.series import Count, Level, Marks, SharedCount, SharedSpread, Spread
from stepwell.metrics.sheetlayout import (
    CELL,
    HEADER_SIZE,
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

S = TypeVar("S")


class _Shelf(Generic[S]):
    """Series of one kind that were made, by instrument and label values."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.known: dict[tuple[int, tuple[str, ...]], S] = {}
        self.by_last: dict[tuple[int, str], list[S]] = {}
        """By instrument and the value of its last label, to be added up: there may be thousands."""


class Sheet:
    """What one process counts. Series are made by any thread, at their first mention, and stay.

    A value outside its label's closed set counts as `other`, also names from code beyond `PAIRS_MAX`, and flows that
    are none of `flows` (None: any may be one). A series is either for one thread or shared: asked for both ways, it is
    refused.
    """

    def __init__(self, segments: Segments, clock: Clock | None = None, flows: Container[str] | None = None) -> None:
        self._segments = segments
        self._clock = SystemClock() if clock is None else clock
        self.trace: Callable[[str], str] = _no_trace
        """Asked for the trace of an execution that becomes an exemplar, in hex; empty: none. On the counting thread."""
        self._names = Names(flows=flows)
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
    def open(cls, path: Path, clock: Clock | None = None, flows: Container[str] | None = None) -> Self:
        """The sheet that was made at `path` (`SheetFile`) for this process.

        Raises:
            OSError: there is none.
        """
        return cls(FileSegments(path), clock, flows)

    @classmethod
    def in_memory(cls, clock: Clock | None = None, flows: Container[str] | None = None) -> Self:
        """A sheet for this process alone."""
        return cls(MemorySegments(), clock, flows)

    @property
    def source(self) -> Source:
        """To read it by, in this process."""
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

    def shown(self, instrument: Instrument, *values: str) -> tuple[str, ...]:
        """The label values by which a series of these is shown. Raises ValueError as `count` does."""
        with self._lock:
            return self._names.fold(instrument, values)

    def counted(self, instrument: Instrument, last: str) -> float:
        """What all series of a counter for one thread have counted together whose last label has that value. From any
        thread."""
        return sum([each.numbers[each.at] for each in self._counts.by_last.get((id(instrument), last), ())])

    def spreads_of(self, instrument: Instrument) -> dict[tuple[str, ...], bytes]:
        """Of a histogram's series for one thread, by label values: how many values lie in each bucket, and last their
        sum, as doubles. From any thread."""
        of, size = id(instrument), len(instrument.bounds) + 2
        known = self._spreads.known.copy()
        return {key[1]: s.numbers[s.at : s.at + size].tobytes() for key, s in known.items() if key[0] == of}

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
                shelf.by_last.setdefault((key[0], "".join(key[1][-1:])), []).append(found)
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
    ) -> tuple[memoryview[float], int, Marks | None]:
        number = self._made
        text = "\0".join(values).encode()
        start = self._append(text, 0, PRINTS[id(instrument)], cells_of(instrument) * CELL, first)
        self._made += 1
        marks = self._new_marks(number) if instrument.exemplars else None
        return self._numbers, start // CELL, marks

    def _new_marks(self, series: int) -> Marks:
        return Marks(
            lambda bucket: self._new_mark(series, bucket), self._clock, lambda execution: self.trace(execution)
        )

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


def _no_trace(_execution: str) -> str:
    return ""
