"""Totals as text: Prometheus' own format 0.0.4, and OpenMetrics 1.0 with exemplars.

What is the same at every scrape (names, labels, bounds) is made once for each series; a scrape fills in numbers, and
exemplars where they are others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind, Together
from stepwell.metrics.sheetlayout import cells_of
from stepwell.metrics.sheetreader import Mark
from stepwell.metrics.totals import Row, Taken

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "Page", "samples_of"]

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
EXEMPLAR_CHARS_MAX: Final = 128
"""Of the names and values of an exemplar's labels together, says OpenMetrics."""
_END: Final = "\n"
_LABELS: Final = "\0"
"""In place of a series' labels, in what is the same for all series: they hold none."""
_EXECUTION: Final = "execution"
_TRACE: Final = "trace_id"
"""What Grafana and others know a trace by."""

_GAUGES: Final = frozenset(each.name for each in INSTRUMENTS if each.kind is Kind.GAUGE)


class Page:
    """One format. Keeps what it made of each series, so a page is for the totals of one `Totals`; one thread a time."""

    def __init__(self, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._known = 0
        self._marks: Mapping[int, Mark] = {}
        self._ends: list[str] = []
        self._families: dict[Instrument, _Family] = {
            instrument: (_Histograms if instrument.kind is Kind.HISTOGRAM else _Counters)(instrument, openmetrics)
            for instrument in INSTRUMENTS
            if instrument.kind is not Kind.GAUGE
        }

    @property
    def content_type(self) -> str:
        """What it is."""
        return OPENMETRICS_TYPE if self._openmetrics else TEXT_TYPE

    def render(self, taken: Taken) -> str:
        """The text, without OpenMetrics' end mark."""
        for row in taken.rows[self._known :]:
            self._families[row.instrument].add(row)
        self._known = len(taken.rows)
        self._mark(taken)
        parts: list[str] = []
        for instrument in INSTRUMENTS:
            if instrument.kind is Kind.GAUGE:
                parts += _gauge(instrument, taken.levels.get(instrument, {}))
            else:
                parts += self._families[instrument].lines(taken.numbers, self._ends)
        return "".join(parts)

    def _mark(self, taken: Taken) -> None:
        """How the line of each number ends: with its exemplar, if there is one."""
        ends, shown = self._ends, self._marks
        ends += [_END] * (len(taken.numbers) - len(ends))
        for at, mark in taken.marks.items():
            if shown.get(at) is not mark:
                ends[at] = _exemplar(mark)
        self._marks = taken.marks


class _Family(ABC):
    """The lines of a counter or a histogram as they were shown last: of many series, most have not changed since."""

    def __init__(self, instrument: Instrument, openmetrics: bool) -> None:
        name = instrument.full_name
        kind = instrument.kind.value
        # In OpenMetrics a counter's family lacks the suffix; where a gauge has that name, it is told as of no kind.
        apart = openmetrics and instrument.kind is Kind.COUNTER and instrument.name in _GAUGES
        self._exemplars = openmetrics and instrument.exemplars and not apart
        if openmetrics and instrument.kind is Kind.COUNTER:
            name, kind = (name, "unknown") if apart else (name.removesuffix("_total"), kind)
        self._head = _head(name, kind, instrument)
        self._starts: list[int] = []
        self._texts: list[str] = []

    def add(self, row: Row) -> None:
        """One more series."""
        self._starts.append(row.start)
        self._texts.append("")
        self._begin(row)

    def lines(self, numbers: Sequence[float], ends: Sequence[str]) -> Iterable[str]:
        """All of them; none where there is no series. `ends`: how each number's line ends, if it may have an
        exemplar."""
        if not self._starts:
            return ()
        self._fill(numbers, ends)
        return (self._head, *self._texts)

    @abstractmethod
    def _begin(self, row: Row) -> None:
        """Make what never changes of a series."""

    @abstractmethod
    def _fill(self, numbers: Sequence[float], ends: Sequence[str]) -> None:
        """Write the texts anew whose numbers or ends are others."""


class _Counters(_Family):
    """One line each."""

    def __init__(self, instrument: Instrument, openmetrics: bool) -> None:
        super().__init__(instrument, openmetrics)
        self._whole = not instrument.name.endswith("_seconds")
        self._heads: list[str] = []
        self._numbers: list[float] = []
        self._ends: list[str] = []

    def _begin(self, row: Row) -> None:
        self._heads.append(f"{row.instrument.full_name}{_braced(_labels(_label_names(row.instrument), row.values))} ")
        self._numbers.append(math.nan)
        self._ends.append(_END)

    def _fill(self, numbers: Sequence[float], ends: Sequence[str]) -> None:
        heads, texts, whole = self._heads, self._texts, self._whole
        now = [numbers[start] for start in self._starts]
        of = [ends[start] for start in self._starts] if self._exemplars else self._ends
        for place, (number, before, end, shown) in enumerate(zip(now, self._numbers, of, self._ends, strict=True)):
            if number != before or end is not shown:
                texts[place] = f"{heads[place]}{int(number) if whole else number}{end}"
        self._numbers, self._ends = now, of


class _Histograms(_Family):
    """A line for each bucket, the count and the sum."""

    def __init__(self, instrument: Instrument, openmetrics: bool) -> None:
        super().__init__(instrument, openmetrics)
        name, labelled = instrument.full_name, bool(instrument.labels)
        bounds = [*(str(float(bound)) for bound in instrument.bounds), "+Inf"]
        buckets = [f"{name}_bucket{{{_LABELS}{',' if labelled else ''}{_label('le', bound)}}} %d" for bound in bounds]
        braced = f"{{{_LABELS}}}" if labelled else ""
        rest = f"{name}_count{braced} %d\n{name}_sum{braced} %r\n"
        self._plain = "\n".join([*buckets, rest])
        self._marked = "%s".join([*buckets, rest])
        self._size = len(bounds)
        self._labels: list[str] = []
        self._numbers: list[Sequence[float]] = []
        self._ends: list[Sequence[str]] = []

    def _begin(self, row: Row) -> None:
        self._labels.append(",".join(_labels(_label_names(row.instrument), row.values)))
        self._numbers.append(())
        self._ends.append(())

    def _fill(self, numbers: Sequence[float], ends: Sequence[str]) -> None:
        known, shown = self._numbers, self._ends
        size, exemplars = self._size, self._exemplars
        for place, start in enumerate(self._starts):
            now = numbers[start : start + size + 1]
            of = ends[start : start + size] if exemplars else ()
            if now != known[place] or of != shown[place]:
                known[place], shown[place] = now, of
                self._texts[place] = self._text(now, of).replace(_LABELS, self._labels[place])

    def _text(self, numbers: Sequence[float], ends: Sequence[str]) -> str:
        """Without labels; each bucket holds what the smaller ones hold, too."""
        counts = [*accumulate(map(int, numbers[:-1]))]
        if not ends or ends.count(_END) == len(ends):
            return self._plain % (*counts, counts[-1], numbers[-1])
        filled: list[int | str] = [0] * (2 * self._size)
        filled[::2], filled[1::2] = counts, ends
        return self._marked % (*filled, counts[-1], numbers[-1])


def _exemplar(mark: Mark) -> str:
    """As much as there is room for: a trace leads to its execution, so it goes first."""
    room, labels = EXEMPLAR_CHARS_MAX, ""
    if mark.trace:
        room -= len(_TRACE) + len(mark.trace)
        labels = _label(_TRACE, mark.trace)
    if mark.execution and len(_EXECUTION) + len(mark.execution) <= room:
        labels += ("," if labels else "") + _label(_EXECUTION, mark.execution)
    return f" # {{{labels}}} {mark.value!r} {mark.at:.3f}\n" if labels else _END


def _gauge(instrument: Instrument, levels: Mapping[tuple[str, ...], float]) -> list[str]:
    if not levels:
        return []
    names = _label_names(instrument)
    return [
        _head(instrument.full_name, "gauge", instrument),
        *(
            f"{instrument.full_name}{_braced(_labels(names, values))} {_number(value)}\n"
            for values, value in levels.items()
        ),
    ]


def _head(name: str, kind: str, instrument: Instrument) -> str:
    meaning = instrument.meaning.replace("\\", "\\\\").replace("\n", "\\n").replace('"', "'")
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"


def _label_names(instrument: Instrument) -> list[str]:
    apart = instrument.kind is Kind.GAUGE and instrument.together is Together.APART
    return [*(label.name for label in instrument.labels), *(["shard"] if apart else [])]


def _labels(names: Iterable[str], values: Iterable[str]) -> list[str]:
    return [_label(name, value) for name, value in zip(names, values, strict=True)]


def _label(name: str, value: str) -> str:
    return f'{name}="{_escaped(value)}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _braced(labels: Sequence[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def samples_of(taken: Taken) -> Iterable[tuple[str, dict[str, str], float]]:
    """Each sample as Prometheus has it: name, labels, value."""
    for row in taken.rows:
        name, size = row.instrument.full_name, cells_of(row.instrument)
        labels = dict(zip(_label_names(row.instrument), row.values, strict=True))
        numbers = taken.numbers[row.start : row.start + size]
        if size == 1:
            yield name, labels, numbers[0]
            continue
        counts = list(accumulate(numbers[:-1]))
        for bound, count in zip([*(str(float(each)) for each in row.instrument.bounds), "+Inf"], counts, strict=True):
            yield f"{name}_bucket", {**labels, "le": bound}, count
        yield f"{name}_count", labels, counts[-1]
        yield f"{name}_sum", labels, numbers[-1]
    for instrument, levels in taken.levels.items():
        for values, level in levels.items():
            yield instrument.full_name, dict(zip(_label_names(instrument), values, strict=True)), level
