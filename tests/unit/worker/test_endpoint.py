"""The endpoint of a worker that is one process."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from stepwell.metrics.sheet import Sheet
from stepwell.worker.endpoint import serve
from stepwell.worker.health import NO_PARTITION
from stepwell.worker.hosting import Hosted
from stepwell.worker.telemetry import Telemetry

pytestmark = pytest.mark.threads


class Scene:
    """An endpoint of a shard that is made up."""

    def __init__(self) -> None:
        self.telemetry = Telemetry(Sheet.in_memory())
        self.problem = ""
        watchdog = SimpleNamespace(problem=lambda: self.problem)
        self.shard = SimpleNamespace(seconds_since_tick=0.0, ready=True, watchdog=watchdog)
        hosted = SimpleNamespace(shard=self.shard, telemetry=self.telemetry)
        self.exposition = serve(cast(Hosted, hosted), "127.0.0.1", 0)

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.exposition.url}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.exposition.stop()


def test_it_shows_what_the_shard_counts_and_which_version_counts_it(scene: Scene) -> None:
    scene.telemetry.undelivered("mail", "gone")
    status, page = scene.ask("/metrics")
    assert status == 200
    assert "stepwell_undelivered_total 1" in page
    assert 'stepwell_build_info{version="' in page


def test_a_shard_is_alive_while_its_lease_thread_comes_round(scene: Scene) -> None:
    scene.shard.seconds_since_tick = 10.0
    assert scene.ask("/healthz") == (200, "ok\n")
    scene.shard.seconds_since_tick = 10.1
    assert scene.ask("/healthz") == (503, "the thread that renews leases has not come round for 10.1 s\n")


def test_a_shard_is_ready_when_it_owns_a_partition_and_nothing_holds_it_up(scene: Scene) -> None:
    assert scene.ask("/readyz") == (200, "ok\n")
    scene.problem = "the scheduler is held up"
    assert scene.ask("/readyz") == (503, "the scheduler is held up\n")
    scene.shard.ready = False
    assert scene.ask("/readyz") == (503, f"{NO_PARTITION}\n")
