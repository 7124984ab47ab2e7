"""What a step costs, in calls of our own Python functions: unlike microseconds the same everywhere, each time."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from sim.harness import World

from stepwell import flow, sleep, step
from stepwell.core.limits import Limits

MakeWorld = Callable[..., World]

CALLS_MAX = 131
"""A step of a long flow may not make more. Lower it when there is less to do; whoever raises it says what for."""


@step
async def noop(turn: int) -> dict[str, int]:
    return {"turn": turn}


@flow
async def chain(steps: int) -> int:
    for turn in range(steps):
        await noop(turn)
    return steps


@flow
async def rests() -> None:
    await sleep(days=1)


numbers = itertools.count()


def calls_of(run: Callable[[], object]) -> int:
    """How many functions of ours are called meanwhile."""
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and frame.f_globals.get("__name__", "").startswith("stepwell."):
            count += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def calls_a_step(world: World, begin: int, end: int, executions: int = 10) -> float:
    """Of so many executions side by side, from their step `begin` to their step `end`."""

    def run(steps: int) -> int:
        before = len(world.ledger.runs)
        for _ in range(executions):
            world.start(chain, f"c{next(numbers)}", steps=steps)
        calls = calls_of(world.settle)
        assert len(world.ledger.runs) - before == executions * steps
        return calls

    return (run(end) - run(begin)) / (end - begin) / executions


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world(chain, rests, audited=False)
    made.shard(limits=Limits(passivate_after=1e6))
    calls_a_step(made, 0, 1)  # what is made at its first use is not counted
    return made


def test_a_step_makes_few_calls(world: World) -> None:
    calls = calls_a_step(world, 5, 25)
    assert 0.9 * CALLS_MAX < calls <= CALLS_MAX, f"{calls:.1f} calls a step, expected {CALLS_MAX} or a few less"


def test_a_step_costs_the_same_however_long_its_execution_is(world: World) -> None:
    assert calls_a_step(world, 120, 140) == pytest.approx(calls_a_step(world, 5, 25), rel=0.01)


def test_a_step_costs_the_same_however_many_executions_wait_in_memory(world: World) -> None:
    alone = calls_a_step(world, 5, 25)
    for number in range(300):
        world.start(rests, f"r{number}")
    world.settle()
    assert len(world.shards[0].in_memory) == 300
    assert calls_a_step(world, 5, 25) == pytest.approx(alone, rel=0.01)
