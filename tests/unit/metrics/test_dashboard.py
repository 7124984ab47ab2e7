"""The dashboard is what its description makes, of Grafana's types; it names only what there is, and all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from unit.metrics.promql import named_in, problems_of, samples

from stepwell.metrics.dashboards.grafana import text
from stepwell.metrics.instruments import INSTRUMENTS

COLUMNS = 24
KEPT = resources.files("stepwell.metrics").joinpath("dashboards/stepwell.json").read_text()
SHOWN: dict[str, Any] = json.loads(KEPT)
PANELS = [panel for panel in SHOWN["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
QUERIES = [target["expr"] for _, target in TARGETS]
PLACES = {"timeseries", "heatmap"}
"""Panels that have a place for examples."""
# Ids that Grafana has; it shows the bare number for one that it does not know.
UNITS = {"short", "s", "ops", "percentunit", "bytes"}


def not_understood(given: Any, understood: Any, where: str = "") -> Iterator[str]:
    """What a reader of a document does not write again, or otherwise. It may add what it takes for granted."""
    if isinstance(given, dict) and isinstance(understood, dict):
        for name, value in given.items():
            if name in understood:
                yield from not_understood(value, understood[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}"
    elif isinstance(given, list) and isinstance(understood, list) and len(given) == len(understood):
        for index, (one, other) in enumerate(zip(given, understood, strict=True)):
            yield from not_understood(one, other, f"{where}[{index}]")
    elif given != understood:
        yield f"{where}: {given!r}, read as {understood!r}"


def as_grafana_reads(document: dict[str, Any]) -> Any:
    """A dashboard, read by the types that Grafana publishes, panels' and queries' own ones too, and written again."""
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(document)))


def test_the_file_is_what_the_description_makes() -> None:
    assert text() == KEPT, "run: python -m stepwell.metrics.dashboards > metrics/dashboards/stepwell.json"


def test_grafanas_own_types_understand_all_of_it() -> None:
    assert list(not_understood(SHOWN, as_grafana_reads(SHOWN))) == []


def test_what_they_do_not_understand_is_seen() -> None:
    wrong = json.loads(KEPT)
    panel = next(panel for panel in wrong["panels"] if panel["type"] == "heatmap")
    panel["options"]["tooltip"] = {"show": True}
    panel["targets"][0]["expression"] = panel["targets"][0].pop("expr")
    found = list(not_understood(wrong, as_grafana_reads(wrong)))
    assert [each.rpartition(".")[2] for each in found] == ["expression", "show"]


@pytest.mark.parametrize("promql", QUERIES)
def test_a_query_names_only_metrics_labels_and_values_that_there_are(promql: str) -> None:
    assert named_in(promql) or promql.count("ALERTS{") == 1
    assert problems_of(promql) == []
    assert "WORKER" not in promql
    assert "FLOW" not in promql


def test_every_metric_is_shown() -> None:
    shown = {samples()[name][0].full_name for promql in QUERIES for name in named_in(promql)}
    assert shown == {each.full_name for each in INSTRUMENTS}


@pytest.mark.parametrize("promql", QUERIES)
def test_every_query_asks_for_the_chosen_workers_only(promql: str) -> None:
    for name in named_in(promql):
        assert promql.count(name) == promql.count(f'{name}{{job=~"$job", instance=~"$instance"')


@pytest.mark.parametrize("promql", QUERIES)
def test_a_query_of_what_flows_do_asks_for_the_chosen_flows_only(promql: str) -> None:
    for name in named_in(promql):
        if "flow" in samples()[name][1]:
            assert promql.count(name) == promql.count(f'{name}{{job=~"$job", instance=~"$instance", flow=~"$flow"')


@pytest.mark.parametrize("promql", QUERIES)
def test_rates_are_taken_over_windows_that_have_some_scrapes_in_them(promql: str) -> None:
    # Of `$__rate_interval` Grafana makes four scrapes at least, and never less than from one point to the next.
    assert set(re.findall(r"\[([^]]+)\]", promql)) <= {"$__rate_interval", "$__range"}


def test_examples_are_asked_for_where_there_are_some() -> None:
    have = {f"{each.full_name}_bucket" if each.bounds else each.full_name for each in INSTRUMENTS if each.exemplars}
    for panel, target in TARGETS:
        assert target.get("exemplar", False) is bool(named_in(target["expr"]) & have and panel["type"] in PLACES), (
            panel["title"]
        )
    assert {name for _, target in TARGETS if target.get("exemplar") for name in named_in(target["expr"])} >= have


def test_numbers_have_units_that_grafana_knows_and_counters_are_shown_as_rates() -> None:
    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS}
    assert units <= UNITS
    for panel, target in TARGETS:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        [*_, last] = sorted(named_in(target["expr"]), key=len) or [""]
        if panel["type"] == "timeseries" and "_seconds" in last and "cpu" not in last:
            assert unit == "s", panel["title"]
        if panel["type"] == "timeseries" and last.endswith("_bytes"):
            assert unit == "bytes", panel["title"]


def test_panels_fill_the_grid_and_none_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in SHOWN["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in SHOWN["panels"]}) == len(SHOWN["panels"])
    assert [panel["title"] for panel in SHOWN["panels"] if panel["type"] == "row"] == [
        "At a glance",
        "Retries",
        "Work",
        "Safety",
        "Runtime",
    ]


def test_every_panel_says_what_it_is_for() -> None:
    assert all(panel["title"] and panel["description"].endswith(".") for panel in PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS), "pages name panels by their titles"


def test_a_query_that_names_what_there_is_not_is_seen() -> None:
    assert problems_of("sum(stepwell_steps_total)") == ["no metric stepwell_steps_total"]
    assert problems_of('stepwell_executions{status="gone"}') == ["stepwell_executions has no status gone"]
    assert problems_of('stepwell_dead_letters{reason="input"}') == ["stepwell_dead_letters has no label reason"]
    assert problems_of("sum by (step) (stepwell_dead_letters)") == ["no label step"]
    assert problems_of('stepwell_commit_seconds_bucket{le="0.3"}') == ["stepwell_commit_seconds has no bound 0.3"]
