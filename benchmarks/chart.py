"""Draws a `Chart` as PNG and SVG, all in one style: the question on top, date and machine below it.

    draw(chart, "2026-11-29, 2 cores of AMD EPYC", Path("bench-results/throughput-turns"), ["png", "svg"])

Needs matplotlib (`pip install 'stepwell[bench]'`); `can_draw()` says whether it is there.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.result import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["can_draw", "draw"]

WIDTH = 8.0  # inches
HEIGHT = 4.6
BAR_INCHES = 0.42
HEAD_INCHES = 0.95  # title and subtitle
FOOT_INCHES = 0.75
TICKS_MAX = 13  # as many places of a curve are named on its axis
COLOURS = ("#0b6e99", "#d9730d", "#2f8f5b", "#a03b6f", "#8a6d00", "#5b5fc7", "#777777")
OURS = "Stepwell"
OTHERS = "#9aa7b4"
INK = "#22272e"
FAINT = "#6b7480"
GRID = "#dfe3e8"
STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "grid.color": GRID,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "stepwell",  # the same numbers make the same file
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(chart: Chart, subtitle: str, path: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write `path` with each suffix (`path` has none); the files' paths."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        height = _height(chart)
        figure = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _frame(figure, chart, subtitle, height)
        {"bars": _bars, "curve": _curve, "shares": _shares}[chart.kind](axes, chart)
        _finish(axes, chart)
        files = []
        for kind in kinds:
            files.append(path.parent / f"{path.name}.{kind}")
            # No date in the file: drawing again from the same numbers changes nothing.
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(files[-1], dpi=144, metadata=metadata)
        return files


def _height(chart: Chart) -> float:
    if chart.kind != "bars":
        return HEIGHT
    groups = len(chart.categories) * (1 if len(chart.series) == 1 else 0.35 + 0.65 * len(chart.series))
    return HEAD_INCHES + FOOT_INCHES + BAR_INCHES * max(2.0, groups)


def _frame(figure: Figure, chart: Chart, subtitle: str, height: float) -> None:
    left = 0.09
    if chart.kind == "bars":
        left = min(0.45, 0.03 + 0.0105 * max(len(name) for name in chart.categories))
    figure.subplots_adjust(left, FOOT_INCHES / height, 0.97, 1 - HEAD_INCHES / height)
    figure.text(0.02, 1 - 0.2 / height, chart.title, fontsize=13, fontweight="bold", va="top")
    figure.text(0.02, 1 - 0.48 / height, subtitle, fontsize=8.5, color=FAINT, va="top")


def _bars(axes: Axes, chart: Chart) -> None:
    many = len(chart.series)
    thick = 0.68 / many
    end = max([max(series.high or series.y) for series in chart.series] + [chart.aim or 0.0])
    for number, series in enumerate(chart.series):
        places = [place + (number - (many - 1) / 2) * thick for place in range(len(series.y))]
        axes.barh(places, series.y, thick * 0.92, color=_bar_colours(chart, number), label=series.label)
        if series.low:
            axes.errorbar(series.y, places, xerr=_around(series), fmt="none", ecolor=INK, elinewidth=1, capsize=2.5)
        for place, value, top in zip(places, series.y, series.high or series.y, strict=True):
            text, at = number_text(value), (max(value, top), place)
            axes.annotate(text, at, (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(chart.categories)), chart.categories)
    axes.tick_params("y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.grid(axis="x")
    if "x" in chart.log:
        least = min(value for series in chart.series for value in (series.low or series.y) if value > 0)
        axes.set_xscale("log")
        axes.set_xlim(10 ** math.floor(math.log10(least * 0.8)), end * 2)
    else:
        axes.set_xlim(0, end * 1.13 if end else 1)


def _bar_colours(chart: Chart, number: int) -> list[str]:
    """One colour per series; beside other systems ours stand out."""
    ours = [name.startswith(OURS) for name in chart.categories]
    if len(chart.series) == 1 and any(ours) and not all(ours):
        return [COLOURS[0] if own else OTHERS for own in ours]
    return [COLOURS[number % len(COLOURS)]] * len(ours)


def _curve(axes: Axes, chart: Chart) -> None:
    for number, series in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(series.x, series.y, color=colour, marker="o", markersize=4, linewidth=1.8, label=series.label)
        if series.low:
            x, low, high = list(series.x), list(series.low), list(series.high)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.grid()
    places = sorted({x for series in chart.series for x in series.x})
    if "x" in chart.log:
        axes.set_xscale("log")
    if len(places) <= TICKS_MAX:
        axes.set_xticks(places, [number_text(place) for place in places])
        axes.minorticks_off()
    if "y" in chart.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _shares(axes: Axes, chart: Chart) -> None:
    for number, series in enumerate(chart.series):
        axes.plot(series.x, series.y, color=COLOURS[number % len(COLOURS)], linewidth=1.8, label=series.label)
    axes.grid()
    axes.set_ylim(0, 1.01)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    if "x" in chart.log:
        axes.set_xscale("symlog", linthresh=1)  # 0 has a place, too
        axes.xaxis.set_major_formatter(lambda value, _: number_text(value))


def _finish(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    if chart.kind == "curve" and "y" in chart.log:
        low, high = axes.get_ylim()
        if high / low < 100:
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if chart.kind != "curve" or "x" in chart.log:
        axes.xaxis.set_major_formatter(lambda value, _: number_text(value))
    if chart.kind == "curve":
        axes.yaxis.set_major_formatter(lambda value, _: number_text(value))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(chart.x_label)
    if chart.y_label:
        axes.set_title(chart.y_label, loc="left", x=-0.08, fontsize=10, color=FAINT)
    if chart.aim is not None:
        line = axes.axhline if chart.kind == "curve" else axes.axvline
        line(chart.aim, color=FAINT, linewidth=1, linestyle=(0, (4, 3)), label=f"aim: {number_text(chart.aim)}")
    if chart.kind == "shares":
        axes.set_xlim(left=0)
    named = zip(*axes.get_legend_handles_labels(), strict=True)
    # What a single series is says the title.
    shown = [(handle, label) for handle, label in named if len(chart.series) > 1 or label != chart.series[0].label]
    if shown:
        handles, labels = zip(*shown, strict=True)
        # Above the bars, as these fill the whole plot.
        above = {"loc": "lower right", "bbox_to_anchor": (1, 1)} if chart.kind == "bars" else {"loc": "best"}
        axes.legend(handles, labels, frameon=False, fontsize=9, **above)


def _around(series: Series) -> list[list[float]]:
    below = [value - low for value, low in zip(series.y, series.low, strict=True)]
    above = [high - value for value, high in zip(series.y, series.high, strict=True)]
    return [below, above]


def number_text(value: float) -> str:
    """A number as a person reads it: three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
