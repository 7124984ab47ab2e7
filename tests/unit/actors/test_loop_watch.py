"""An async body that holds up the event loop is named once, with its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from unit.actors.runner_stage import HANG_SECONDS, Gate, Stage, both

from stepwell import step
from stepwell.actors.kit.clock import monotonic
from stepwell.actors.runner.loopwatch import HELD_SECONDS_MAX, LoopWatch

pytestmark = pytest.mark.threads


class Later:
    """Time that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return monotonic() + self.ahead


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.runner.stop(5.0)


@pytest.fixture
def now() -> Later:
    return Later()


@pytest.fixture
def watch(stage: Stage, now: Later) -> LoopWatch:
    runner = stage.runner
    return LoopWatch(runner._loop, runner._thread, runner.soon, runner.at_work, now)


def blocking(gate: Gate, in_a_task: bool = False) -> Any:
    @step(name="blocking")
    async def blocking() -> None:
        async def inner() -> None:
            gate.pass_through()

        await (asyncio.create_task(inner()) if in_a_task else inner())

    return blocking


def come_back(stage: Stage) -> None:
    """The loop has done all that was asked of it by now."""
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), stage.runner._loop).result(HANG_SECONDS)


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if getattr(record, "fields", {}).get("event") == "StepLoopHeld"]


def test_who_blocks_the_loop_is_told_once_with_its_place(
    stage: Stage, watch: LoopWatch, now: Later, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    box = stage.start(blocking(gate), path="blocking#2")
    gate.wait_entered()
    watch.look()
    watch.look()
    assert not warnings(caplog)
    now.ahead = HELD_SECONDS_MAX + 1
    watch.look()
    watch.look()
    gate.open()
    box.next()
    [told] = warnings(caplog)
    assert told.getMessage().startswith("step blocking#2 of execution e1 has held the event loop for 3 s at ")
    assert told.fields["where"].startswith(f"at {__file__}:")
    assert told.fields["where"].endswith(" in inner")
    assert (told.fields["execution"], told.fields["path"]) == ("e1", "blocking#2")


def test_a_loop_that_was_held_is_told_of_again_when_it_is_held_again(
    stage: Stage, watch: LoopWatch, now: Later, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        gate = Gate()
        box = stage.start(blocking(gate))
        gate.wait_entered()
        watch.look()
        now.ahead += HELD_SECONDS_MAX + 1
        watch.look()
        gate.open()
        box.next()
        come_back(stage)
        stage.runner.settle("e1", "step", 1)
    assert len(warnings(caplog)) == 2


def test_a_task_that_a_step_has_started_is_told_without_a_name(
    stage: Stage, watch: LoopWatch, now: Later, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    box = stage.start(blocking(gate, in_a_task=True))
    gate.wait_entered()
    watch.look()
    now.ahead = HELD_SECONDS_MAX + 1
    watch.look()
    gate.open()
    box.next()
    assert [each.getMessage().split(" has held")[0] for each in warnings(caplog)] == ["a task of a step"]


def test_steps_that_wait_hold_nothing_up(
    stage: Stage, watch: LoopWatch, now: Later, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    box = stage.start(both(gate)["async"], 1)
    gate.wait_entered()
    watch.look()
    come_back(stage)
    now.ahead = HELD_SECONDS_MAX + 1
    watch.look()
    gate.open()
    box.next()
    assert not warnings(caplog)
