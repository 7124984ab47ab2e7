"""Numbers of many sheets as one: totals outlive the processes that counted them, and series don't multiply.

Sheets come and go at *places* (a shard's index). What a process that is gone had counted stays in its place's base, and
its successor's numbers are added to that; what is a level goes with it. A place's sum is the same before and after its
process' end is noted, to the last bit, and places are added in one order: so no total ever goes down.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Final, NamedTuple

from stepwell.metrics.folding import Names
from stepwell.metrics.instruments import Instrument, Kind, Together
from stepwell.metrics.segments import Source
from stepwell.metrics.sheetlayout import cells_of
from stepwell.metrics.sheetreader import ZERO_AT, Mark, Seen, SheetReader

__all__ = ["Row", "Taken", "Totals"]


class Row(NamedTuple):
    """A counter's or a histogram's series among the totals: its numbers lie at `start`, `cells_of(instrument)` many."""

    instrument: Instrument
    values: tuple[str, ...]
    start: int


Key = tuple[Instrument, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Taken:
    """All numbers at one moment.

    Attributes:
        rows: counters and histograms, in the order in which they were first seen: what was taken before comes first.
        numbers: theirs.
        levels: gauges that have a value, by instrument and label values (with `shard` at the end where shards are told
            apart).
        marks: exemplars by the place in `numbers` of what they stand for, if asked for: of several the newest, and
            the same object as long as there is no newer one.
    """

    rows: Sequence[Row]
    numbers: Sequence[float]
    levels: dict[Instrument, dict[tuple[str, ...], float]]
    marks: Mapping[int, Mark]


FEW: Final = 100
"""Series that are added one by one rather than as part of all."""

_TOGETHER: Final[dict[Together, Callable[[float, float], float]]] = {
    Together.SUM: add,
    Together.GREATEST: max,
    Together.LEAST: min,
}


@dataclass(slots=True)
class _Place:
    """One shard's: the sum of all processes that ended there, and the sheet of the present one.

    `starts` are the rows of its series (-1: of none), `levels` its gauges and where they lie. `spans` are its other
    series: the start of a row, where its numbers lie in the sheet, how many; `more` those that count for the same row
    as another one, as both are `other` here. `pick` takes all rows' numbers from the sheet at once.
    """

    base: array[float] = field(default_factory=lambda: array("d"))
    source: Source | None = None
    reader: SheetReader | None = None
    starts: list[int] = field(default_factory=list)
    levels: list[tuple[Instrument, tuple[str, ...], int]] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    more: list[tuple[int, int, int]] = field(default_factory=list)
    pick: Callable[[Sequence[float]], tuple[float, ...]] | None = None
    picks: int = 0


class Totals:
    """May be used from any thread. `known`: series that are there from the start, with 0."""

    def __init__(self, known: Iterable[Key] = ()) -> None:
        self._lock = threading.Lock()
        self._names = Names()
        self._places: dict[int, _Place] = {}
        self._rows: list[Row] = []
        self._starts: dict[Key, int] = {}
        self._marks: dict[int, Mark] = {}
        # Two zeros, as `itemgetter` gives no tuple of less than two.
        self._size = 2
        for key in known:
            self._add(key)

    def attach(self, place: int, source: Source) -> None:
        """A process writes a new sheet at that place; what the one before had counted stays."""
        with self._lock:
            self._fold(place)
            of = self._places.setdefault(place, _Place())
            of.source, of.reader = source, SheetReader(source.read)

    def end(self, place: int) -> None:
        """The process of that place has ended, so that nobody writes its sheet any more; the sheet is closed."""
        with self._lock:
            self._fold(place)

    def take(self, marks: bool = False) -> Taken:
        """All numbers as they are now, and the exemplars if they are wanted."""
        with self._lock:
            looks = [(index, place, self._look(place)) for index, place in sorted(self._places.items())]
            numbers = [0.0] * self._size
            for _, place, seen in looks:
                numbers = self._added(numbers, place, seen)
            if marks:
                for _, place, _ in looks:
                    self._note_marks(place)
            return Taken(tuple(self._rows), numbers, _levels(looks), self._marks.copy() if marks else {})

    def counted(self, place: int, counter: Instrument, *values: str) -> float | None:
        """What the process of that place has counted of one of a counter's series by now; None, so nobody knows, if it
        has no sheet."""
        with self._lock:
            of = self._places.get(place)
            if of is None or of.reader is None:
                return None
            numbers = self._look(of)
            at, _ = of.spans.get(self._starts.get((counter, values), -1), (ZERO_AT, 1))
            return numbers[at]

    def _fold(self, index: int) -> None:
        place = self._places.get(index)
        if place is not None and place.source is not None:
            place.base = array("d", self._sum(place, self._look(place)))
            self._note_marks(place)
            place.source.close()
            place.source, place.reader, place.pick = None, None, None
            place.starts, place.levels, place.spans, place.more = [], [], {}, []

    def _look(self, place: _Place) -> Sequence[float]:
        reader = place.reader
        if reader is None:
            return ()
        numbers = reader.look()
        for seen in reader.series[len(place.starts) :]:
            place.starts.append(-1 if seen is None else self._met(place, seen))
        return numbers

    def _met(self, place: _Place, seen: Seen) -> int:
        """A series was seen for the first time in this sheet; the start of its row, -1 for a gauge."""
        instrument = seen.instrument
        if instrument.kind is Kind.GAUGE:
            place.levels.append((instrument, self._names.fold(instrument, seen.values), seen.at))
            return -1
        start = self._starts.get((instrument, seen.values))
        if start is None:
            key = (instrument, self._names.fold(instrument, seen.values))
            start = self._starts.get(key)
            if start is None:
                start = self._add(key)
        size = cells_of(instrument)
        if start in place.spans:
            place.more.append((start, seen.at, size))
        else:
            place.spans[start] = (seen.at, size)
            place.pick = None
        return start

    def _add(self, key: Key) -> int:
        start = self._starts[key] = self._size
        self._rows.append(Row(*key, start))
        self._size += cells_of(key[0])
        return start

    def _added(self, numbers: list[float], place: _Place, seen: Sequence[float]) -> list[float]:
        if place.base or place.more or len(place.spans) > FEW:
            return list(map(add, numbers, self._sum(place, seen)))
        for start, (at, size) in place.spans.items():
            for offset in range(size):
                numbers[start + offset] += seen[at + offset]
        return numbers

    def _sum(self, place: _Place, seen: Sequence[float]) -> Iterable[float]:
        """What was ever counted there."""
        missing = self._size - len(place.base)
        if missing and place.base:
            place.base.extend([0.0] * missing)
        if place.reader is None:
            return place.base or [0.0] * self._size
        numbers: Iterable[float] = self._pick(place)(seen)
        if place.base:
            numbers = map(add, place.base, numbers)
        if not place.more:
            return numbers
        summed = list(numbers)
        for start, at, size in place.more:
            for offset in range(size):
                summed[start + offset] += seen[at + offset]
        return summed

    def _pick(self, place: _Place) -> Callable[[Sequence[float]], tuple[float, ...]]:
        if place.pick is None or place.picks < self._size:
            picks = [ZERO_AT] * self._size
            for start, (at, size) in place.spans.items():
                picks[start : start + size] = range(at, at + size)
            place.pick, place.picks = itemgetter(*picks), self._size
        return place.pick

    def _note_marks(self, place: _Place) -> None:
        if place.reader is None:
            return
        starts, known = place.starts, self._marks
        for subject, bucket, mark in place.reader.marks():
            start = starts[subject] if subject < len(starts) else -1
            if start < 0:
                continue
            before = known.get(start + bucket)
            if before is None or before.at <= mark.at:
                known[start + bucket] = mark


def _levels(looks: Iterable[tuple[int, _Place, Sequence[float]]]) -> dict[Instrument, dict[tuple[str, ...], float]]:
    levels: dict[Instrument, dict[tuple[str, ...], float]] = {}
    for index, place, numbers in looks:
        for instrument, values, at in place.levels:
            value = numbers[at]
            if math.isnan(value):
                continue
            of = levels.setdefault(instrument, {})
            together = _TOGETHER.get(instrument.together)
            if together is None:
                of[*values, str(index)] = value
            else:
                of[values] = together(of[values], value) if values in of else value
    return levels
