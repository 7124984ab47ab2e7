"""Metrics of processes that come and go add up: what was counted stays counted, and series don't multiply."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from stepwell.metrics.exposition import Exposition
from stepwell.metrics.merging import MergedMetrics, families_of

Values = dict[str, float]


class Process:
    """What one process counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.done = Counter("done", "Done.", ["step"], registry=self.registry)
        self.level = Gauge("level", "Level.", registry=self.registry)
        self.took = Histogram("took", "Took.", buckets=(1, 2), registry=self.registry)


class Merged(Collector):
    """The sums as a registry shows them."""

    def __init__(self, merged: MergedMetrics) -> None:
        self.collect = merged.collect  # type: ignore[method-assign]


@pytest.fixture
def merged() -> MergedMetrics:
    return MergedMetrics()


def values(merged: MergedMetrics) -> Values:
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for metric in merged.collect()
        for sample in metric.samples
    }


def test_living_processes_add_up(merged: MergedMetrics) -> None:
    one, two = Process(), Process()
    one.done.labels("a").inc(3)
    two.done.labels("a").inc(4)
    two.done.labels("b").inc()
    one.level.set(5)
    two.level.set(6)
    one.took.observe(0.5)
    two.took.observe(1.5)
    merged.update("one", families_of(one.registry))
    merged.update("two", families_of(two.registry))
    found = values(merged)
    assert (found["done_total a"], found["done_total b"], found["level"]) == (7, 1, 11)
    assert (found["took_bucket 1.0"], found["took_bucket 2.0"], found["took_bucket +Inf"]) == (1, 2, 2)
    assert (found["took_count"], found["took_sum"]) == (2, 2.0)
    assert not any("created" in name for name in found)


@pytest.mark.pain(42)
def test_counts_outlive_their_process_and_levels_go_with_it(merged: MergedMetrics) -> None:
    process = Process()
    process.done.labels("a").inc(3)
    process.level.set(5)
    merged.update("one", families_of(process.registry))
    merged.end("one")
    assert values(merged)["done_total a"] == 3
    assert "level" not in values(merged)
    merged.update("two", families_of(Process().registry))
    assert values(merged)["done_total a"] == 3
    assert values(merged)["level"] == 0


@pytest.mark.pain(42)
def test_five_hundred_restarts_leave_series_flat_and_totals_right(merged: MergedMetrics) -> None:
    series: set[int] = set()
    last = 0.0
    for number in range(500):
        process = Process()
        merged.update(f"p{number}", families_of(process.registry))
        for _ in range(2):
            process.done.labels("a").inc()
            process.took.observe(1)
            merged.update(f"p{number}", families_of(process.registry))
            now = values(merged)["done_total a"]
            assert now == last + 1
            last = now
        merged.end(f"p{number}")
        assert values(merged)["done_total a"] == last
        series.add(len(values(merged)))
    assert last == 1000
    assert len(series) == 1
    assert values(merged)["took_count"] == 1000


def test_the_end_of_a_process_that_never_answered_changes_nothing(merged: MergedMetrics) -> None:
    merged.end("unknown")
    assert values(merged) == {}


def test_they_can_be_shown_like_any_registry(merged: MergedMetrics) -> None:
    process = Process()
    process.done.labels("a").inc()
    merged.update("one", families_of(process.registry))
    registry = CollectorRegistry()
    registry.register(Merged(merged))
    _, _, page = Exposition(registry)._pages.answer("/metrics", "")
    assert b'done_total{step="a"} 1.0\n' in page
    assert b"# TYPE took histogram\n" in page
