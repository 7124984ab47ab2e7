"""What shards have counted is shown as long as their worker lives, whatever becomes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.worker.fleet_stage import Scene

from stepwell.metrics.instruments import HEALED_EXECUTIONS
from stepwell.metrics.usage import Usage, usage_of
from stepwell.worker import control as c

HEALED = "stepwell_healed_executions_total"


def counts(scene: Scene, process: int, many: int) -> None:
    """The process counts so many, in the order in which they were made."""
    scene.sheets[process].count(HEALED_EXECUTIONS).inc(many)


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.start()
    return made


@pytest.mark.pain(42)
def test_totals_stay_when_a_shard_dies_and_grow_with_its_successor(scene: Scene) -> None:
    counts(scene, 0, 5)
    counts(scene, 1, 7)
    scene.falls(0)
    assert scene.metric(HEALED) == 12
    scene.fleet.examined(0, scene.slots[0].life, named=False)
    scene.later(0.5)
    scene.comes_up(0)
    assert scene.metric(HEALED) == 12
    counts(scene, 2, 1)
    assert scene.metric(HEALED) == 13


def test_what_a_shard_counts_at_its_end_counts(scene: Scene) -> None:
    scene.fleet.drain(1.0)
    counts(scene, 0, 9)
    scene.process(0).said = [c.Drained(0)]
    scene.falls(0, "exit code 0")
    assert scene.metric(HEALED) == 9


def test_a_shard_that_is_mute_holds_up_no_scrape_and_is_counted(scene: Scene) -> None:
    scene.process(0).deaf = True
    counts(scene, 0, 3)
    scene.now += 30.0
    assert scene.metric(HEALED) == 3
    assert scene.process(0).told == []


def test_what_shards_use_is_shown_as_long_as_they_live_and_their_time_adds_up(scene: Scene) -> None:
    def seen() -> tuple[float | None, float | None]:
        return (
            scene.metric("stepwell_shard_cpu_seconds_total", shard="0"),
            scene.metric("stepwell_shard_resident_memory_bytes", shard="0"),
        )

    assert seen() == (None, None), "no /proc"
    scene.usages[100] = Usage("100 7", 1.5, 50_000)
    assert seen() == (1.5, 50_000)
    scene.usages[100] = Usage("100 7", 2.0, 0)
    scene.falls(0)
    assert seen() == (2.0, None)
    scene.slots[0].handle = scene.processes[0]  # a scrape that began before
    assert seen() == (2.0, None)
    scene.slots[0].handle = None
    scene.fleet.examined(0, scene.slots[0].life, named=False)
    scene.later(0.5)
    scene.comes_up(0)
    scene.usages[scene.process(0).pid] = Usage("102 8", 0.25, 60_000)
    assert seen() == (2.25, 60_000)
    assert scene.metric("stepwell_shard_cpu_seconds_total", shard="1") is None


def test_linux_tells_what_a_process_uses() -> None:
    usage = usage_of(os.getpid())
    assert usage_of(-1) is None
    if Path("/proc/self/stat").exists():
        assert usage is not None
        assert usage.resident_bytes > 1 << 20
        assert 0 <= usage.cpu_seconds < 1e6


def test_what_was_counted_is_there_after_all_were_killed_at_once(scene: Scene) -> None:
    counts(scene, 0, 2)
    counts(scene, 1, 3)
    scene.fleet.kill()
    assert scene.metric(HEALED) == 5
    assert all(place.source is None for index, place in scene.totals._places.items() if index >= 0)
