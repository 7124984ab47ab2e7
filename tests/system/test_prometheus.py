"""A real Prometheus scrapes a worker of two shards; its answers are compared with what was seen and with the rows."""

from __future__ import annotations

from system.support.prometheus import Prometheus, address_of
from system.support.stage import Stage


def test_a_worker_is_scraped(stage: Stage, prometheus: Prometheus) -> None:
    worker = stage.worker("--shards", "2").ready()
    prometheus.start([address_of(worker)])
    prometheus.wait_for_targets()
    prometheus.wait_for_scrape()
    assert prometheus.series() > 10
    [target] = prometheus.targets()
    assert target["lastError"] == ""
