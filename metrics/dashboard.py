"""Grafana's JSON of the panels: `python -m stepwell.metrics.dashboard` writes it, dashboards/stepwell.json is it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

from stepwell.metrics.panels import ROWS, Kind, Panel, Row

__all__ = ["dashboard", "main", "text"]

Json: TypeAlias = "str | float | bool | list[Json] | dict[str, Json] | None"

COLUMNS: Final = 24
SCHEMA_VERSION: Final = 37  # Grafana 9; later ones bring it up to date when they load it
_SOURCE: Final[dict[str, Json]] = {"type": "prometheus", "uid": "${datasource}"}
_WORKER: Final = 'job=~"$job", instance=~"$instance"'
_PLACES: Final = (("WORKER", _WORKER), ("FLOW", f'{_WORKER}, flow=~"$flow"'))
_INSTANT: Final = frozenset({Kind.BARS, Kind.TABLE})
_SIZES: Final = {Kind.NUMBER: (4, 4)}
_USUAL: Final = (8, 8)
"""Width and height in Grafana's grid."""


def dashboard() -> dict[str, Json]:
    """The whole dashboard, as Grafana imports it."""
    return {
        "title": "Stepwell",
        "uid": "stepwell",
        "description": "Flows on Stepwell: retries, work, safety, runtime.",
        "tags": ["stepwell"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": _panels(ROWS),
    }


def text() -> str:
    """The same as it is kept: a line for each panel."""
    members = []
    for name, value in dashboard().items():
        parts = value if name == "panels" and isinstance(value, list) else ()
        written = ",\n".join(json.dumps(part) for part in parts)
        members.append(f'"{name}": ' + (f"[\n{written}\n]" if parts else json.dumps(value)))
    return "{\n" + ",\n".join(members) + "\n}\n"


def main() -> int:
    """Print it."""
    sys.stdout.write(text())
    return 0


def _variables() -> list[Json]:
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
            "hide": 0,
            "includeAll": False,
            "multi": False,
            "options": [],
            "refresh": 1,
            "regex": "",
        },
        _variable("job", "Job", "label_values(stepwell_build_info, job)"),
        _variable("instance", "Worker", 'label_values(stepwell_build_info{job=~"$job"}, instance)'),
        _variable("flow", "Flow", f"label_values(stepwell_step_attempts_total{{{_WORKER}}}, flow)"),
    ]


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "includeAll": True,
        "multi": True,
        "options": [],
        "refresh": 2,
        "regex": "",
        "sort": 1,
    }


def _panels(rows: Sequence[Row]) -> list[Json]:
    """All panels, each row's below its heading, from left to right as far as they fit."""
    placed: list[Json] = []
    top = 0
    for row in rows:
        placed.append(_heading(len(placed) + 1, row.title, top))
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            w, h = _SIZES.get(panel.kind, _USUAL)
            if left + w > COLUMNS or (height and h != height):
                left, top = 0, top + height
            height = h
            placed.append(_panel(len(placed) + 1, panel, {"x": left, "y": top, "w": w, "h": h}))
            left += w
        top += height
    return placed


def _heading(number: int, title: str, top: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _panel(number: int, panel: Panel, place: dict[str, Json]) -> Json:
    colour: dict[str, Json] = {"mode": "palette-classic" if panel.kind is Kind.LINES else "thresholds"}
    defaults: dict[str, Json] = {"unit": panel.unit, "color": colour, "thresholds": _thresholds(panel.bad_above)}
    if panel.when_empty:
        defaults["noValue"] = panel.when_empty
    if panel.kind is Kind.LINES:
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
        defaults["min"] = 0
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            _target(chr(ord("A") + index), panel.kind, query.promql, query.legend)
            for index, query in enumerate(panel.queries)
        ],
        "transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
        if panel.kind is Kind.TABLE
        else [],
    }


def _thresholds(bad_above: float | None) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if bad_above is not None:
        steps.append({"color": "red", "value": bad_above + 0.001})  # a step's own value belongs to its colour
    return {"mode": "absolute", "steps": steps}


def _options(panel: Panel) -> Json:
    last: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind is Kind.NUMBER:
        return {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "textMode": "auto",
            "reduceOptions": last,
        }
    if panel.kind is Kind.BARS:
        return {"orientation": "horizontal", "displayMode": "basic", "showUnfilled": True, "reduceOptions": last}
    if panel.kind is Kind.TABLE:
        return {"showHeader": True}
    if panel.kind is Kind.SPREAD:
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
            "legend": {"show": True},
            "tooltip": {"show": True, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "unit": panel.unit},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _target(name: str, kind: Kind, promql: str, legend: str) -> Json:
    for word, labels in _PLACES:
        promql = promql.replace(word, labels)
    formats = {Kind.SPREAD: "heatmap", Kind.TABLE: "table"}
    return {
        "refId": name,
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": promql,
        "legendFormat": legend or "__auto",
        "format": formats.get(kind, "time_series"),
        "instant": kind in _INSTANT,
        "range": kind not in _INSTANT,
    }


if __name__ == "__main__":
    sys.exit(main())
