"""What probes are told of a worker's shards."""

from __future__ import annotations

import pytest
from unit.worker.fleet_stage import Scene, pulse

from stepwell.worker.slots import alive, ready


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.start()
    return made


def test_a_worker_is_well_while_all_lease_threads_come_round(scene: Scene) -> None:
    assert alive(scene.slots, scene.now) == ""
    scene.say(1, pulse(silent=9.9))
    assert alive(scene.slots, scene.now) == ""
    scene.say(1, pulse(silent=10.1))
    assert alive(scene.slots, scene.now) == "shard w/1: the thread that renews leases has not come round for 10.1 s"


def test_silence_of_the_whole_shard_counts_as_well(scene: Scene) -> None:
    scene.now += 10.5
    scene.say(0, pulse())
    assert alive(scene.slots, scene.now).startswith("shard w/1:")


def test_a_shard_that_is_being_restarted_is_the_parents_care_and_no_illness(scene: Scene) -> None:
    scene.falls(0)
    scene.now += 100
    scene.say(1, pulse())
    assert alive(scene.slots, scene.now) == ""


def test_it_is_ready_when_all_run_and_one_owns_partitions(scene: Scene) -> None:
    assert ready(scene.slots) == ""
    scene.say(0, pulse(ready=False, standing_by=True))
    assert ready(scene.slots) == ""
    scene.say(1, pulse(ready=False))
    assert ready(scene.slots).startswith("no partition is owned: ")


def test_it_says_which_shard_is_not_there(scene: Scene) -> None:
    scene.falls(1)
    assert ready(scene.slots) == "shard w/1 is restarting"
    scene.fleet.examined(1, 1, named=True)
    scene.fleet.tick()
    assert ready(scene.slots) == "shard w/1 is starting"
    scene.fleet.drain(1.0)
    assert ready(scene.slots) == "shard w/0 is ending"


def test_it_says_what_holds_a_shard_up(scene: Scene) -> None:
    scene.say(1, pulse(problem="order-7 has held the scheduler for 4 s"))
    assert ready(scene.slots) == "shard w/1: order-7 has held the scheduler for 4 s"
