"""Plain counters and histograms show what the Prometheus client's own would."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from stepwell.metrics.plain import PlainCounter, PlainHistogram

BOUNDS = (0.005, 0.25, 1, 10, 1800, 3600)
VALUES = (0.0, 0.005, 0.0051, 0.25, 1, 1.0000001, 9.5, 3600, 3601, 1e9)


def page(registry: CollectorRegistry) -> list[str]:
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


def test_a_page_is_the_same_as_with_the_clients_own_metrics():
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    plain = (
        PlainCounter("stepwell_tries", "Tries.", ("flow", "step"), ours),
        PlainCounter("stepwell_drops", "Drops.", (), ours),
        PlainHistogram("stepwell_seconds", "How long.", ("flow",), BOUNDS, ours),
        PlainHistogram("stepwell_late_seconds", "How late.", (), BOUNDS, ours),
    )
    own = (
        Counter("stepwell_tries", "Tries.", ("flow", "step"), registry=theirs),
        Counter("stepwell_drops", "Drops.", registry=theirs),
        Histogram("stepwell_seconds", "How long.", ("flow",), buckets=BOUNDS, registry=theirs),
        Histogram("stepwell_late_seconds", "How late.", buckets=BOUNDS, registry=theirs),
    )
    assert page(ours) == page(theirs), "before anything is counted"

    for tries, _, seconds, _ in (plain, own):
        for flow in ('a"b', "c"):
            tries.labels(flow, "d").inc()
            tries.labels(flow, "d").inc()
            for value in VALUES:
                seconds.labels(flow).observe(value)
    plain[1].labels().inc()
    own[1].inc()
    plain[3].labels().observe(7)
    own[3].observe(7)
    assert page(ours) == page(theirs)


def test_a_scrape_while_values_come_in_is_whole_and_the_end_is_exact():
    registry = CollectorRegistry()
    seconds = PlainHistogram("stepwell_seconds", "How long.", ("flow",), (1.0,), registry)
    ended = threading.Event()
    torn: list[tuple[float | None, float | None]] = []

    def scrape() -> None:
        while not ended.is_set():
            family = next(iter(registry.collect()))
            of = {sample.labels["flow"]: sample.value for sample in family.samples if sample.name.endswith("_count")}
            buckets = [s for s in family.samples if s.labels.get("le") == "+Inf"]
            torn.extend((s.value, of[s.labels["flow"]]) for s in buckets if s.value != of[s.labels["flow"]])

    reader = threading.Thread(target=scrape)
    reader.start()
    for turn in range(20_000):
        seconds.labels(f"flow{turn % 500}").observe(turn % 3)
    ended.set()
    reader.join()
    assert torn == []
    total = sum(registry.get_sample_value("stepwell_seconds_count", {"flow": f"flow{n}"}) or 0 for n in range(500))
    assert total == 20_000
