"""The dashboard is what its description makes, names only what there is, and leaves nothing out."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from unit.metrics.promql import named_in, problems_of, samples

from stepwell.metrics.dashboard import COLUMNS, dashboard, text
from stepwell.metrics.instruments import INSTRUMENTS

SHOWN: dict[str, Any] = json.loads(json.dumps(dashboard()))
PANELS = [panel for panel in SHOWN["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_file_is_what_the_description_makes() -> None:
    kept = resources.files("stepwell.metrics").joinpath("dashboards/stepwell.json").read_text()
    assert kept == text(), "run: python -m stepwell.metrics.dashboard > metrics/dashboards/stepwell.json"
    assert json.loads(kept) == dashboard()


@pytest.mark.parametrize("promql", QUERIES)
def test_a_query_names_only_metrics_labels_and_values_that_there_are(promql: str) -> None:
    assert named_in(promql)
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
    assert {panel["title"] for panel in SHOWN["panels"] if panel["type"] == "row"} == {
        "At a glance",
        "Retries",
        "Work",
        "Safety",
        "Runtime",
    }


def test_every_panel_says_what_it_is_for() -> None:
    assert all(panel["title"] and panel["description"].endswith(".") for panel in PANELS)


def test_a_query_that_names_what_there_is_not_is_seen() -> None:
    assert problems_of("sum(stepwell_steps_total)") == ["no metric stepwell_steps_total"]
    assert problems_of('stepwell_executions{status="gone"}') == ["stepwell_executions has no status gone"]
    assert problems_of('stepwell_dead_letters{reason="input"}') == ["stepwell_dead_letters has no label reason"]
    assert problems_of("sum by (step) (stepwell_dead_letters)") == ["no label step"]
    assert problems_of('stepwell_commit_seconds_bucket{le="0.3"}') == ["stepwell_commit_seconds has no bound 0.3"]
