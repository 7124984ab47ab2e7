"""Kinds of panels, each with the look that all of its kind have here: numbers, lines, bars, spreads, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from stepwell.metrics.dashboards.queries import Query, written_out
from stepwell.metrics.instruments import INSTRUMENTS

__all__ = ["SOURCE", "Picture", "Row", "bars", "lines", "number", "spread", "tabular"]

SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_EXEMPLARS: Final = tuple(
    f"{each.full_name}_bucket" if each.bounds else each.full_name for each in INSTRUMENTS if each.exemplars
)

Picture: TypeAlias = Builder[models.Panel]
_Panel = TypeVar("_Panel", bargauge.Panel, heatmap.Panel, stat.Panel, table.Panel, timeseries.Panel)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: tuple[Picture, ...]


def number(
    title: str,
    meaning: str,
    promql: str,
    unit: str = "short",
    *,
    colours: Sequence[tuple[float, str]] = (),
    below: str = "green",
    when_empty: str = "",
) -> Picture:
    """One number. `colours`: from which value on it has which; `below` them, and where there is no number, another."""
    counted = "$__range" in promql
    panel = stat.Panel().graph_mode(looks.BigValueGraphMode.AREA).reduce_options(_last())
    if counted and unit == "short":
        panel.decimals(0)  # Prometheus extrapolates
    return (
        _described(panel, title, meaning, unit, when_empty, ((None, below), *colours))
        .span(3)
        .height(4)
        .with_target(_target(0, Query(promql), PromQueryFormat.TIME_SERIES, instant=counted))
    )


def lines(
    title: str,
    meaning: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    when_empty: str = "",
) -> Picture:
    """Lines over time, from 0 up."""
    panel = (
        timeseries.Panel()
        .min(0)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(20 if stacked else 5)
        .show_points(looks.VisibilityMode.NEVER)
        .stacking(
            common.StackingConfig().mode(looks.StackingMode.NORMAL if stacked else looks.StackingMode.NONE).group("A")
        )
        .legend(common.VizLegendOptions().show_legend(True).placement(looks.LegendPlacement.BOTTOM))
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
    )
    for index, query in enumerate(queries):
        panel.with_target(_target(index, query, PromQueryFormat.TIME_SERIES, examples=True))
    return _described(panel, title, meaning, unit, when_empty)


def bars(title: str, meaning: str, query: Query, unit: str, when_empty: str = "") -> Picture:
    """The last value of each line as a bar."""
    panel = bargauge.Panel().orientation(looks.VizOrientation.HORIZONTAL).reduce_options(_last())
    return _described(panel, title, meaning, unit, when_empty).with_target(
        _target(0, query, PromQueryFormat.TIME_SERIES, instant=True)
    )


def spread(title: str, meaning: str, query: Query, unit: str = "short") -> Picture:
    """How a histogram's values lie, over time."""
    panel = (
        heatmap.Panel()
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").exponent(0.5).steps(64))
        .y_axis(heatmap.YAxisConfig().axis_placement(looks.AxisPlacement.LEFT).unit(unit))
    )
    return _described(panel, title, meaning, unit).with_target(
        _target(0, query, PromQueryFormat.HEATMAP, examples=True)
    )


def tabular(title: str, meaning: str, *queries: Query, when_empty: str = "") -> Picture:
    """A line for all that have the same labels, a column for each query that has a name."""
    panel = table.Panel()
    # Grafana calls a column `Value #A` where several queries have answers, else `Value`.
    names = {"Value": queries[0].legend}
    if len(queries) > 1:
        names |= {f"Value #{_letter(index)}": query.legend for index, query in enumerate(queries)}
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True} | {value: True for value, name in names.items() if not name},
                "indexByName": {},
                "renameByName": {value: name for value, name in names.items() if name},
            },
        )
    )
    for index, query in enumerate(queries):
        panel.with_target(_target(index, query, PromQueryFormat.TABLE, instant=True))
        if query.unit:
            unit = [models.DynamicConfigValue("unit", query.unit), models.DynamicConfigValue("decimals", 1)]
            panel.override_by_name(query.legend, unit)
    return _described(panel, title, meaning, "short", when_empty).decimals(0)


def _described(
    panel: _Panel,
    title: str,
    meaning: str,
    unit: str,
    when_empty: str = "",
    colours: Sequence[tuple[float | None, str]] = ((None, "green"),),
) -> _Panel:
    if when_empty:
        panel.no_value(when_empty)
    steps = [models.Threshold(value, colour) for value, colour in colours]
    panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    return panel.title(title).description(meaning).datasource(SOURCE).unit(unit).span(8).height(8)


def _target(
    index: int, query: Query, how: PromQueryFormat, *, instant: bool = False, examples: bool = False
) -> prometheus.Dataquery:
    """`examples`: the picture has a place for them; they are asked for where there are some."""
    target = prometheus.Dataquery().ref_id(_letter(index)).datasource(SOURCE).editor_mode(QueryEditorMode.CODE)
    target.expr(written_out(query.promql)).legend_format(query.legend or "__auto").format(how)
    if instant:
        return target.instant()
    return target.range().exemplar(examples and any(name in query.promql for name in _EXEMPLARS))


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])
