"""What an execution is found by stays true whatever happens to it; its lists are compared with its row (`audit.py`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World
from sim.tail import Tail

from stepwell import FatalError, Retry, current_step, flow, step
from stepwell.core.attributes import Attributes

MakeWorld = Callable[..., World]
GIVEN: Attributes = {"customer": "c7", "n": 1, "vip": True}


@step(retry=Retry(max_attempts=2, base=5, jitter=0))
async def fails() -> None:
    await work(1)
    raise ValueError("no")


@step
async def gives_up() -> None:
    raise FatalError("no")


@step
async def reads() -> object:
    return current_step().attributes


@flow
async def failing() -> None:
    await fails()


@flow
async def fatal() -> None:
    await gives_up()


@flow
async def reading() -> object:
    return await reads()


@pytest.fixture
def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(World, "attributes_of", lambda self, execution_id: GIVEN)
    return make_world(failing, fatal, reading)


def places(world: World, execution_id: str = "e1") -> dict[str, float]:
    found = {key.rpartition("}:")[2]: at for key, at in world.audit._places()[execution_id].items()}
    assert found.keys() >= {"attr:customer=c7", "attr:n=1", "attr:vip=true"}
    assert len(set(found.values())) == 1, "one time everywhere"
    return found


def test_a_step_knows_the_attributes_of_its_execution(world: World) -> None:
    world.shard()
    world.start(reading, "e1")
    world.run(lambda: world.ended("e1"))
    assert world.show("e1")["result"] == world.show("e1")["attributes"] == GIVEN


def test_it_keeps_its_place_until_it_ends_and_gets_it_back_with_a_retry(world: World) -> None:
    world.shard()
    created = world.clock.now_ms()
    world.start(failing, "e1")
    for seconds, status in ((0.5, "running"), (3, "waiting")):
        world.run_for(seconds)
        assert world.status("e1") == status
        assert places(world).get(f"by:{status}") == places(world)["flow:failing"] == created
    world.run(lambda: world.ended("e1"))
    ended = world.show("e1")["ended_at"]
    assert ended > created
    assert places(world).get("error:ValueError") == places(world)["by:error"] == ended
    world.retry("e1")
    world.run_for(0.5)
    assert world.status("e1") == "running"
    assert "error:ValueError" not in places(world)
    assert places(world)["flow:failing"] == created


@pytest.mark.pain(20)
def test_a_retry_that_fails_in_the_turn_that_began_it_moves_it(world: World) -> None:
    world.shard()
    world.start(fatal, "e1")
    world.run(lambda: world.ended("e1"))
    first = places(world)["error:FatalError"]
    world.run_for(10)
    world.retry("e1")
    world.run_for(10)
    assert places(world)["error:FatalError"] > first


@pytest.mark.pain(56)
def test_a_lost_tail_takes_nothing_off_its_lists_and_leaves_it_on_no_other(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "attributes_of", lambda self, execution_id: GIVEN)
    world = make_world(failing, loses_rows=True)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    tail = Tail(world)
    world.shard()
    world.start(failing, "e1")
    world.run(lambda: world.ended("e1"))
    tail.mark()
    world.retry("e1")
    world.run_for(0.5)
    assert "error:ValueError" not in places(world)
    tail.lose()
    assert "error:ValueError" in places(world)
    world.run_for(4)
    assert world.status("e1") in ("running", "waiting")
    assert "error:ValueError" not in places(world)
