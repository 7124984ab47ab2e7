"""Starts that wait for room are no stuck inbox, and hide none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import flow, step
from stepwell.actors import store_events as seen

MakeWorld = Callable[..., World]
LONG = 900.0


@step
async def toil(seconds: float) -> float:
    await work(seconds)
    return seconds


@flow(max_running=1)
async def one_at_a_time(seconds: float) -> float:
    return await toil(seconds)


@flow
async def any_number(seconds: float) -> float:
    return await toil(seconds)


def ages(world: World) -> list[float]:
    return [told.oldest_age for told in world.of_type(seen.LyingCounted)]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One partition of which an execution has held the only place of its flow for ten minutes; two starts wait."""
    made = make_world(one_at_a_time, any_number, partitions=1)
    made.shard()
    made.start(one_at_a_time, "holder", seconds=LONG)
    made.run_for(10)
    for number in range(2):
        made.start(one_at_a_time, f"e{number}", seconds=30.0)
        made.run_for(5)
    made.run_for(600)
    return made


@pytest.mark.pain(42)
def test_starts_that_wait_for_their_flow_s_only_place_are_no_lag(world: World) -> None:
    assert world.of_type(seen.LyingCounted)[-1].lying.entries == 2
    assert max(ages(world)) < 10
    told = world.of_type(seen.StartsWait)[-1]
    assert told.ages == {"one_at_a_time": pytest.approx(605, abs=10), "any_number": 0}


def test_they_count_from_when_they_are_let_in_and_then_wait_no_more(world: World) -> None:
    world.run()
    assert max(ages(world)) < 10
    world.run_for(10)
    assert set(world.of_type(seen.StartsWait)[-1].ages.values()) == {0}
    assert world.shards[0].holdings.unapplied.oldest(9, among=[0]) == []


def test_starts_that_wait_for_the_shard_s_only_place_are_no_lag(make_world: MakeWorld) -> None:
    world = make_world(any_number, partitions=2)
    world.shard(max_running=1)
    for number in range(4):
        world.start(any_number, f"e{number}", seconds=LONG)
    world.run_for(600)
    assert world.of_type(seen.LyingCounted)[-1].lying.entries == 3
    assert max(ages(world)) < 10
    assert world.of_type(seen.StartsWait)[-1].ages == {"any_number": pytest.approx(600, abs=10)}


@pytest.mark.pain(42)
def test_an_entry_that_nobody_applies_shows_behind_a_backlog(world: World) -> None:
    entry = {"type": "signal", "execution": "holder", "command": "c1", "v": "999"}
    world.connect().xadd(world.keys.inbox(0), entry, id=f"{world.clock.now_ms()}-0")
    world.run_for(100)
    assert ages(world)[-1] == pytest.approx(100, abs=6)
    world.connect().xtrim(world.keys.inbox(0), maxlen=0)
    world.run_for(10)
    assert ages(world)[-1] == 0, "somebody has taken it out"


def test_a_start_that_was_let_in_and_does_not_begin_shows_from_then_on(world: World) -> None:
    world.run_for(250)
    (shard,) = world.shards
    shard.paused.add("mirror")
    world.run_for(100)
    world.start(any_number, "late", seconds=1.0)
    world.run_for(60)
    assert 50 <= ages(world)[-1] <= 70


def test_what_the_reader_does_not_get_to_read_shows(make_world: MakeWorld) -> None:
    world = make_world(any_number, partitions=1)
    world.shard()
    world.run_for(10)
    (shard,) = world.shards
    store = shard.reader._store
    read = store.read
    store.read = lambda *_: []  # type: ignore[method-assign]
    world.start(any_number, "e1", seconds=1.0)
    world.run_for(100)
    assert ages(world)[-1] == pytest.approx(100, abs=6)
    store.read = read  # type: ignore[method-assign]
    world.run_for(20)
    assert ages(world)[-1] == 0
