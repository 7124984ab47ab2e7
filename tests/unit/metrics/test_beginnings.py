"""What is asked how much it has grown was there before it grew: `increase()` does not see what a series begins with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from itertools import product
from pathlib import Path

import pytest
import yaml
from unit.metrics.promql import samples as known_samples

from stepwell.metrics.instruments import OTHER, Kind, closed_series
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals

ROOT = Path(__file__).resolve().parents[3]
FILES = resources.files("stepwell.metrics")
NAMES = {"flow": "checkout", "step": "charge"}
_GROWTH = re.compile(r"\b(?:increase|rate)\(\s*(stepwell_\w+)")
_OPEN = {"shard"}
"""Labels whose values come with the processes that count."""


def queries() -> Iterator[str]:
    """All that we ask or say is to be asked: rules, panels, docs."""
    for group in yaml.safe_load(FILES.joinpath("alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(FILES.joinpath("dashboards/stepwell.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for page in ("metrics", "prometheus", "alerts"):
        yield (ROOT / f"docs/{page}.md").read_text()


COUNTERS = sorted(
    {
        name
        for query in queries()
        for name in _GROWTH.findall(query)
        if known_samples()[name][0].kind is Kind.COUNTER and not _OPEN & known_samples()[name][1]
    }
)


@pytest.fixture(scope="module")
def at_start() -> set[tuple[str, tuple[str, ...]]]:
    """Series of a worker that has just been started, with 0."""
    sheet = Sheet.in_memory()
    MetricsSubscriber(sheet, {"checkout": ["charge"]})
    totals = Totals(closed_series())
    totals.attach(0, sheet.source)
    return {(name, tuple(labels.values())) for name, labels, value in samples_of(totals.take()) if value == 0}


def test_queries_ask_for_the_growth_of_counters() -> None:
    assert len(COUNTERS) > 10
    assert "stepwell_step_failures_total" in COUNTERS


@pytest.mark.parametrize("counter", COUNTERS)
def test_what_queries_ask_the_growth_of_is_there_before_its_first_event(
    counter: str, at_start: set[tuple[str, tuple[str, ...]]]
) -> None:
    instrument, _ = known_samples()[counter]
    values = [sorted((each.values or {NAMES[each.name]}) - {OTHER}) for each in instrument.labels]
    assert {(counter, combined) for combined in product(*values)} <= at_start
