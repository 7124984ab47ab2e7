"""What a measurement answers, how much it measures, and the pictures that show it: plain data.

How to report, for a new benchmark (see also `report` and `chart`):

    def run(scale: Scale, progress: Progress) -> Result:
        progress.plan(2 * rounds)
        found = alternate({"ours": ours, "theirs": theirs}, rounds, progress)   # A, B, A, B: `benchmarks.rounds`
        return Result(
            "throughput",                                           # its files: throughput.json, throughput-*.svg
            "How many steps a second does one shard run?",
            [Row.of("throughput", "steps/s", values, ">= 8000")],   # the first row is the answer, shown in the overview
            charts=[bars("peers", "Who is fastest?", "steps/s", {"ours": values, "theirs": others})],
            facts={"server": "Valkey 9.1.2", "durability": "relaxed"},
            notes=["skipped: Restate (no binary for this platform)"],
        )

`report.measure` runs it and adds the environment, `report.write` writes `<name>.json` and draws its charts (PNG, SVG),
and `python -m benchmarks.publish` draws them again for the docs from that JSON.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, TypeVar

__all__ = ["Chart", "Result", "Row", "Scale", "Series", "Table", "bars", "curve", "percentile", "shares"]

SHARES = (*(n / 200 for n in range(200)), 0.999, 0.9999, 1.0)
RATES = ("/s",)
X = TypeVar("X", int, float)


@dataclass(frozen=True, slots=True)
class Row:
    """One number. `low` and `high` are the least and the most where it was measured several times; `aim` is a wish.

    `better` says whether more or less of it is good ("" for neither); without it the aim or the unit tells.
    """

    measure: str
    value: float
    unit: str
    aim: str = ""
    low: float | None = None
    high: float | None = None
    better: Literal["", "more", "less", "neither"] = ""

    @classmethod
    def of(cls, measure: str, unit: str, values: Sequence[float], aim: str = "") -> Self:
        """The median of what was measured several times. (One value has no range.)"""
        if len(values) == 1:
            return cls(measure, values[0], unit, aim)
        return cls(measure, statistics.median(values), unit, aim, min(values), max(values))

    @property
    def direction(self) -> Literal["more", "less", "neither"]:
        """Whether more or less of it is good."""
        if self.better:
            return self.better
        if self.aim:
            return {">": "more", "<": "less"}.get(self.aim[0], "neither")  # type: ignore[return-value]
        if not self.unit:
            return "neither"
        return "more" if self.unit.endswith(RATES) else "less"


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, or bars of one colour: `y` at each `x`; `low` and `high` where measured several times."""

    label: str
    y: Sequence[float]
    x: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture. Its title is the question that it answers.

    Attributes:
        name: the file is called `<benchmark>-<name>`.
        kind: `bars` (lying, one group per category; values along x), `curve` (points joined), or `shares` (what share
            of all was at most so much: x is the measure, y the share from 0 to 1).
        categories: what each group of bars is called.
        log: which axes are logarithmic: "", "x", "y", "xy".
        aim: a value that is marked with a dashed line.
    """

    name: str
    title: str
    kind: Literal["bars", "curve", "shares"]
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    categories: Sequence[str] = ()
    log: Literal["", "x", "y", "xy"] = ""
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text under a title, where rows of one number each would be hard to read."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one question. `facts`: what it depends on (server, its settings, durability); `how`: sentences.

    Where there are `tables`, a person is shown them in the place of the rows. `answers`: so many of the first rows are
    the answer that an overview shows.
    """

    name: str
    question: str
    rows: Sequence[Row]
    charts: Sequence[Chart] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    how: str = ""
    tables: Sequence[Table] = ()
    answers: int = 1


@dataclass(frozen=True, slots=True)
class Scale:
    """`quick` only shows that everything works: its numbers mean nothing. `axes`: those of a sweep that are wanted."""

    quick: bool = False
    axes: Sequence[str] = ()

    def of(self, full: int, quick: int) -> int:
        """A count, by scale."""
        return quick if self.quick else full


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def bars(
    name: str, title: str, unit: str, values: Mapping[str, Sequence[float]], aim: float | None = None, log: bool = False
) -> Chart:
    """A bar per name at the median of its values, with their range."""
    series = _series(unit, list(values.values()), ())
    return Chart(name, title, "bars", [series], unit, "", list(values), "x" if log else "", aim)


def curve(
    name: str,
    title: str,
    labels: tuple[str, str],
    lines: Mapping[str, Mapping[X, Sequence[float]]],
    log: Literal["", "x", "y", "xy"] = "",
    aim: float | None = None,
) -> Chart:
    """A line per name through the medians of the values at each x. `labels`: of the x axis and of the y axis."""
    series = [_series(label, list(points.values()), list(points)) for label, points in lines.items()]
    return Chart(name, title, "curve", series, *labels, log=log, aim=aim)


def shares(
    name: str,
    title: str,
    label: str,
    values: Mapping[str, Sequence[float]],
    log: bool = False,
    aim: float | None = None,
) -> Chart:
    """A line per name: what share of its values was at most so much. Some 200 points stand for all values."""
    series = [Series(each, SHARES, [percentile(found, share) for share in SHARES]) for each, found in values.items()]
    return Chart(name, title, "shares", series, label, "share of all", log="x" if log else "", aim=aim)


def _series(label: str, values: Sequence[Sequence[float]], x: Sequence[float]) -> Series:
    many = any(len(each) > 1 for each in values)
    low = [min(each) for each in values] if many else []
    high = [max(each) for each in values] if many else []
    return Series(label, [statistics.median(each) for each in values], x, low, high)
