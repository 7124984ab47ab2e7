"""How many steps run at once, and that whoever waits for that holds nobody else up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import Run, work
from sim.harness import World

from stepwell import Retry, flow, gather, sleep, step
from stepwell.actors import store_events
from stepwell.actors.admission import BURST
from stepwell.core.limits import Limits

MakeWorld = Callable[..., World]


@step
async def toil(seconds: float = 1) -> int:
    await work(seconds)
    return 1


@step(max_running=2, retry=Retry(max_attempts=1))
async def narrow() -> int:
    await work(1)
    return 1


@flow
async def uses_narrow() -> int:
    return await narrow()


@flow
async def plain() -> int:
    return await toil()


@flow
async def wide() -> int:
    return sum(await gather(*[toil() for _ in range(60)]))


@flow
async def wakes_up() -> int:
    await sleep(10)
    return await toil()


def most_at_once(runs: list[Run]) -> int:
    """The most bodies that ran at once."""
    changes = [(run.at_ms, 1) for run in runs] + [(run.ended_ms, -1) for run in runs if run.ended_ms is not None]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def count(world: World, status: str) -> int:
    return sum(world.client.zcard(part.by[status]) for part in world.keys.parts)


def test_no_more_bodies_of_a_limited_step_run_than_may_and_others_don_t_notice(make_world: MakeWorld) -> None:
    world = make_world(uses_narrow, plain)
    world.shard()
    for n in range(9):
        world.start(uses_narrow, f"n{n}")
    for n in range(20):
        world.start(plain, f"p{n}")
    world.run(lambda: world.ended(*[f"p{n}" for n in range(20)]))
    assert world.clock.monotonic() == pytest.approx(1, abs=0.1)
    world.run()
    assert world.clock.monotonic() == pytest.approx(5, abs=0.1)
    runs = [run for run in world.ledger.runs if run.path == "narrow"]
    assert most_at_once(runs) == 2
    assert world.ended(*[f"n{n}" for n in range(9)])


def test_an_attempt_that_waits_its_turn_has_not_begun_so_a_cancel_waits_for_nothing(make_world: MakeWorld) -> None:
    world = make_world(uses_narrow)
    world.shard()
    for n in range(3):
        world.start(uses_narrow, f"n{n}")
    world.run(lambda: len(world.ledger.runs) == 2)
    world.run(lambda: len(world.statuses()["running"]) == 3)
    [waits] = {"n0", "n1", "n2"} - {run.execution_id for run in world.ledger.runs}
    world.cancel(waits)
    world.run(lambda: world.ended(waits), limit=0.5)
    assert world.status(waits) == "cancelled"
    world.run()
    assert world.ledger.of(waits) == []


@pytest.mark.pain(35)
def test_a_drain_waits_only_for_bodies_and_bills_nobody_who_waited(make_world: MakeWorld) -> None:
    world = make_world(uses_narrow)
    shard = world.shard()
    for n in range(5):
        world.start(uses_narrow, f"n{n}")
    world.run(lambda: len(world.ledger.runs) == 2)
    world.run(lambda: len(world.statuses()["running"]) == 5)
    shard.drain()
    world.run_for(1.5)
    assert shard.runner.running == 0
    shard.release()
    assert len(world.statuses()["completed"]) == 2
    world.shard()
    world.run()
    assert len(world.statuses()["completed"]) == 5
    assert {s["interruptions"] for n in range(5) for s in world.show(f"n{n}")["steps"]} == {0}
    assert len(world.ledger.runs) == 5


def test_the_attempts_of_a_crashed_shard_that_waited_their_turn_run_once(make_world: MakeWorld) -> None:
    world = make_world(uses_narrow)
    world.shard()
    for n in range(6):
        world.start(uses_narrow, f"n{n}")
    world.run(lambda: len(world.statuses()["running"]) == 6)
    world.crash()
    world.shard()
    world.run()
    assert len(world.statuses()["completed"]) == 6
    assert most_at_once([run for run in world.ledger.runs if run.shard == "inc2"]) == 2


def test_one_execution_with_many_branches_leaves_its_turn_to_others(make_world: MakeWorld) -> None:
    world = make_world(wide, plain)
    shard = world.shard(limits=Limits(steps=10))
    world.start(wide, "w")
    world.run(lambda: len(world.ledger.runs) == 10)
    world.start(plain, "p")
    world.run(lambda: world.ended("p"))
    assert world.clock.monotonic() == pytest.approx(2, abs=0.1)
    world.run()
    assert world.show("w")["result"] == 60
    assert most_at_once(world.ledger.runs) == 10
    assert shard.runner.running == 0


@pytest.mark.slow
@pytest.mark.hang_limit(180)  # a core is busy with it for a quarter of the usual limit, and cores may be slow
@pytest.mark.pain(4)
def test_five_thousand_overdue_executions_are_ramped_never_run_more_steps_than_may_and_all_finish(
    make_world: MakeWorld,
) -> None:
    world = make_world(wakes_up, audited=False)
    world.shard(limits=Limits(running=10_000))
    for n in range(5000):
        world.start(wakes_up, f"e{n}")
    world.run(lambda: count(world, "waiting") == 5000)
    world.crash()
    world.clock.advance(1000)
    back = world.clock.monotonic()
    shard = world.shard(limits=Limits(running=3000, steps=400))
    world.settle()
    assert len(shard.in_memory) == BURST, "the first of the herd"
    world.run(lambda: count(world, "completed") == 5000)
    assert most_at_once(world.ledger.runs) <= 400
    assert len(world.ledger.runs) == 5000
    assert 12.5 <= world.clock.monotonic() - back < 20
    assert world.of_type(store_events.SweepFound) == []
    assert shard.in_memory == []
