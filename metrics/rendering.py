"""Totals as text: Prometheus' own format 0.0.4, and OpenMetrics 1.0 with exemplars.

What is the same at every scrape (names, labels, bounds) is made once for each series; a scrape fills in numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind, Together
from stepwell.metrics.sheetlayout import cells_of
from stepwell.metrics.sheetreader import Mark
from stepwell.metrics.totals import Exemplars, Row, Taken

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "Page", "samples_of"]

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
EXEMPLAR_CHARS_MAX: Final = 128
"""Of the names and values of an exemplar's labels together, says OpenMetrics."""
_EXECUTION: Final = "execution"
_TRACE: Final = "trace_id"
"""What Grafana and others know a trace by."""

_GAUGES: Final = frozenset(each.name for each in INSTRUMENTS if each.kind is Kind.GAUGE)


class Page:
    """One format. Keeps what it made of each series, so a page is for the totals of one `Totals`; one thread a time."""

    def __init__(self, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._known = 0
        self._families = {
            instrument: _Family(instrument, openmetrics)
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
        parts: list[str] = []
        for instrument in INSTRUMENTS:
            if instrument.kind is Kind.GAUGE:
                parts += _gauge(instrument, taken.levels.get(instrument, {}))
            else:
                self._families[instrument].render(taken, parts)
        return "".join(parts)


class _Family:
    """The lines of a counter or a histogram."""

    def __init__(self, instrument: Instrument, openmetrics: bool) -> None:
        self._instrument = instrument
        name = instrument.full_name
        kind = instrument.kind.value
        # In OpenMetrics a counter's family lacks the suffix; where a gauge has that name, it is told as of no kind.
        apart = openmetrics and instrument.kind is Kind.COUNTER and instrument.name in _GAUGES
        self._exemplars = openmetrics and instrument.exemplars and not apart
        if openmetrics and instrument.kind is Kind.COUNTER:
            name, kind = (name, "unknown") if apart else (name.removesuffix("_total"), kind)
        self._head = _head(name, kind, instrument)
        self._lines = _bucket_lines if instrument.kind is Kind.HISTOGRAM else _counter_lines
        self._size = cells_of(instrument)
        self._series: list[_Series] = []

    def add(self, row: Row) -> None:
        """One more series."""
        self._series.append(_Series(row, self._lines(row)))

    def render(self, taken: Taken, parts: list[str]) -> None:
        """All lines; none where there is no series."""
        if not self._series:
            return
        parts.append(self._head)
        numbers, marks, size = taken.numbers, taken.marks if self._exemplars else {}, self._size
        for series in self._series:
            start = series.start
            now, of = numbers[start : start + size], marks.get(start)
            if now != series.numbers or of is not series.marks:
                series.fill(now, of)
            parts.append(series.text)


class _Series:
    """The lines of one series as they were shown last: of many, most have not changed since."""

    __slots__ = ("_marked_template", "_template", "_texts", "marks", "numbers", "start", "text")

    def __init__(self, row: Row, template: str) -> None:
        self.start = row.start
        self.numbers: Sequence[float] = ()
        self.marks: Exemplars | None = None
        self.text = ""
        self._template = template
        self._marked_template = ""
        self._texts: list[str] = []

    def fill(self, numbers: Sequence[float], marks: Exemplars | None) -> None:
        """Put other numbers into the lines, and exemplars behind them."""
        self.numbers = numbers
        if len(numbers) == 1:
            values = list(numbers)
        else:
            values = list(accumulate(numbers[:-1]))
            values += (values[-1], numbers[-1])
        if marks is None:
            self.text = self._template % tuple(values)
            return
        if marks is not self.marks:
            self._mark(marks, len(values))
        filled: list[float | str] = [0.0] * (2 * len(values))
        filled[::2] = values
        filled[1::2] = self._texts
        self.text = self._marked_template % tuple(filled)

    def _mark(self, marks: Exemplars, lines: int) -> None:
        self.marks = marks
        self._marked_template = self._marked_template or self._template.replace("\n", "%s")
        self._texts = ["\n"] * lines
        for bucket, mark in marks.items():
            self._texts[bucket] = _exemplar(mark)


def _exemplar(mark: Mark) -> str:
    """As much as there is room for: a trace leads to its execution, so it goes first."""
    room = EXEMPLAR_CHARS_MAX
    labels: list[str] = []
    for name, value in ((_TRACE, mark.trace), (_EXECUTION, mark.execution)):
        if value and len(name) + len(value) <= room:
            room -= len(name) + len(value)
            labels.append(_label(name, value))
    return f" # {_braced(labels)} {mark.value!r} {mark.at:.3f}\n" if labels else "\n"


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


def _counter_lines(row: Row) -> str:
    labels = _braced(_labels(_label_names(row.instrument), row.values))
    # Counters count whole things, but for seconds.
    number = "%r" if row.instrument.name.endswith("_seconds") else "%d"
    return f"{row.instrument.full_name}{labels} ".replace("%", "%%") + number + "\n"


def _bucket_lines(row: Row) -> str:
    name = row.instrument.full_name
    labels = _labels(_label_names(row.instrument), row.values)
    bounds = [*(str(float(bound)) for bound in row.instrument.bounds), "+Inf"]
    heads = [f"{name}_bucket{_braced([*labels, _label('le', bound)])} " for bound in bounds]
    lines = [head.replace("%", "%%") + "%d\n" for head in heads]
    braced = _braced(labels).replace("%", "%%")
    return "".join(lines) + f"{name}_count{braced} %d\n{name}_sum{braced} %r\n"


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
