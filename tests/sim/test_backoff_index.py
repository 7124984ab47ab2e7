"""Who backs off can be told from Redis at any time: in memory or not, after losses, and whatever ended the backoff.

What the index says is compared with the rows after every test of the simulation (`audit.py`); here is what people see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from sim.bodies import work
from sim.harness import World
from sim.tail import Tail

from stepwell import Retry, StepFailed, flow, gather, step, wait_for
from stepwell.actors import store_events
from stepwell.client import Client
from stepwell.core.limits import Limits
from stepwell.store import backoffs
from stepwell.store.backoffs import Backoff

MakeWorld = Callable[..., World]
SLOW = Retry(max_attempts=3, base=600, cap=600, jitter=0)


@step(retry=SLOW)
async def fails(seconds: float = 0.0) -> None:
    await work(seconds)
    raise ValueError("no")


@step(retry=Retry(max_attempts=3, base=5, cap=5, jitter=0))
async def fails_often() -> None:
    raise ValueError("no")


@step(retry=Retry(max_attempts=1))
async def gives_up(seconds: float) -> None:
    await work(seconds)
    raise ValueError("enough")


@step
async def toil(seconds: float) -> None:
    await work(seconds)


@flow
async def backs_off() -> None:
    await fails()


@flow
async def hurries() -> None:
    await fails_often()


async def often() -> None:
    with contextlib.suppress(StepFailed):
        await fails_often()


@flow
async def both() -> None:
    await gather(fails(), often(), toil(100))


@flow
async def fails_beside() -> None:
    await gather(fails(), gives_up(10))


@flow
async def listens() -> None:
    await wait_for("word")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(backs_off, hurries, both, fails_beside, listens)


def listed(world: World) -> list[Backoff]:
    """What a client is told."""
    flows = backoffs.flows(world.keys, range(world.keys.partitions))
    query = backoffs.backoffs(world.keys, flows.parse(world._link.call(flows.commands)), 100)
    return query.parse(world._link.call(query.commands))


def found(world: World, **wanted: Any) -> list[tuple[str, str, str]]:
    """Who is listed as one that backs off: the execution, the path of its step, and which attempt of how many comes."""
    with Client("redis://fake", namespace="sim", clock=world.clock, connect=lambda _: world.connect()) as client:
        page = client.list(backing_off=True, **wanted)
    backoffs = [(line["id"], line["backoff"]) for line in page]
    return [(name, each["path"], f"{each['attempt']} of {each['max_attempts']}") for name, each in backoffs]


def counted(world: World) -> dict[str, tuple[int, int]]:
    """What the shard has told last."""
    told: dict[str, tuple[int, int]] = world.of_type(store_events.BackoffsCounted)[-1].by_flow
    return told


def due_of(world: World, execution_id: str, path: str = "fails") -> int:
    due: int = world.show(execution_id)["open"][path]["due_at"]
    return due


@pytest.mark.pain(42)
def test_what_backs_off_is_counted_by_flow_though_it_left_memory(world: World) -> None:
    shard = world.shard()
    for name in ("e1", "e2"):
        world.start(backs_off, name)
    world.start(listens, "e3")
    world.run_for(60)
    assert "e1" not in shard.in_memory
    first = min(due_of(world, "e1"), due_of(world, "e2"))
    assert counted(world) == {"backs_off": (2, first)}
    waiting = world.of_type(store_events.ExecutionsCounted)[-1].waiting
    assert waiting == {"timed": 2, "untimed": 1}
    world.run(lambda: world.ended("e1", "e2"))
    world.run_for(10)
    assert counted(world) == {}


def test_the_first_of_several_steps_is_what_counts_also_beside_one_that_runs(world: World) -> None:
    world.shard()
    world.start(both, "e1")
    world.run_for(1)
    assert world.status("e1") == "running"
    assert listed(world) == [Backoff(due_of(world, "e1", "gather.1/fails_often"), "e1", "both")]
    world.run_for(12)
    assert listed(world) == [Backoff(due_of(world, "e1", "gather.0/fails"), "e1", "both")], "the other one has given up"


@pytest.mark.pain(42)
@pytest.mark.parametrize("way", ["retry", "cancel"])
def test_a_backoff_that_somebody_ends_is_off_the_list(world: World, way: str) -> None:
    world.shard()
    world.start(backs_off, "e1")
    world.run_for(60)
    before = due_of(world, "e1")
    world.send(way, "e1")
    world.hurried.add("e1")
    world.run_for(10)
    assert [each.due_ms for each in listed(world)] == ([] if way == "cancel" else [due_of(world, "e1")])
    assert way == "cancel" or due_of(world, "e1") > before


def test_a_failing_gather_takes_its_backoffs_along(world: World) -> None:
    world.shard()
    world.start(fails_beside, "e1")
    world.run_for(5)
    assert [each.execution_id for each in listed(world)] == ["e1"]
    world.run(lambda: world.ended("e1"))
    assert listed(world) == []


@pytest.mark.pain(42)
def test_what_is_parked_is_not_listed_and_is_again_when_it_goes_on(world: World) -> None:
    shard = world.shard()
    world.start(backs_off, "e1")
    world.run_for(1)
    due = due_of(world, "e1")
    world.crash(shard)
    flows = list(world.registry)
    world.registry = type(world.registry)([listens])
    shard = world.shard()
    world.run_for(597)
    assert world.status("e1") == "parked", "it was looked at as it fell due"
    assert listed(world) == []
    world.crash(shard)
    world.registry = type(world.registry)(flows)
    world.shard()
    world.run_for(1)
    assert listed(world) == [Backoff(due, "e1", "backs_off")]


def test_a_row_that_can_t_be_read_is_not_listed(world: World) -> None:
    shard = world.shard()
    world.start(backs_off, "e1")
    world.run_for(1)
    world.crash(shard)
    world.client.hset(world.keys.row("e1"), "input", "1")
    world.client.hset(world.keys.row("e1"), "p:fails", "rubbish")
    world.shard()
    world.run_for(700)
    assert world.status("e1") == "parked"
    assert listed(world) == []


@pytest.mark.pain(42, 56)
@pytest.mark.parametrize("left", [False, True])
def test_a_lost_tail_brings_the_list_back_with_the_row(make_world: MakeWorld, left: bool) -> None:
    world = make_world(backs_off, hurries, loses_rows=True)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    tail = Tail(world)
    shard = world.shard(limits=Limits(passivate_after=0.5)) if left else world.shard(limits=Limits(passivate_after=1e6))
    tail.mark()
    world.start(backs_off, "e1")
    world.run_for(0.5)
    assert ("e1" in shard.in_memory) == (not left)
    before = listed(world)
    assert [each.execution_id for each in before] == ["e1"]
    tail.lose()
    assert listed(world) == []
    world.run_for(8)
    assert listed(world) == before


def test_a_retry_that_is_lost_is_not_listed_as_a_backoff_for_ever(make_world: MakeWorld) -> None:
    world = make_world(hurries, loses_rows=True)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    tail = Tail(world)
    world.shard()
    world.start(hurries, "e1")
    world.run_for(9.5)
    tail.mark()
    world.run(lambda: world.ended("e1"))
    tail.lose()
    assert [each.execution_id for each in listed(world)] == ["e1"]
    world.run_for(8)
    assert world.ended("e1")
    assert listed(world) == []


@pytest.mark.pain(42)
def test_who_backs_off_can_be_told_from_what_only_sleeps_and_is_found_also_beside_what_runs(world: World) -> None:
    shard = world.shard()
    world.start(backs_off, "e1")
    world.run_for(1)
    world.start(both, "e2")
    world.start(listens, "e3")
    world.run_for(1)
    assert (world.status("e2"), world.status("e3")) == ("running", "waiting")
    assert found(world) == [("e2", "gather.1/fails_often", "2 of 3"), ("e1", "fails", "2 of 3")]
    assert found(world, step="fails") == [("e2", "gather.0/fails", "2 of 3"), ("e1", "fails", "2 of 3")]
    assert found(world, error="ValueError", step="fails_often") == [("e2", "gather.1/fails_often", "2 of 3")]
    assert found(world, error="KeyError") == []
    world.run_for(60)
    assert "e1" not in shard.in_memory
    assert found(world)[0] == ("e1", "fails", "2 of 3"), "the other one's second step has given up"
    for name in ("e1", "e2"):
        world.send("cancel", name)
    world.run(lambda: world.ended("e1", "e2"))
    assert found(world) == []


def test_a_retry_of_those_that_are_found_ends_their_backoffs_and_nothing_else(world: World) -> None:
    world.shard()
    for name, each in (("e1", backs_off), ("e2", listens)):
        world.start(each, name)
    world.run_for(60)
    for name, _, _ in found(world):
        world.send("retry", name)
    world.hurried.add("e1")
    world.run_for(10)
    assert found(world) == [("e1", "fails", "3 of 3")]
    assert world.status("e2") == "waiting"
