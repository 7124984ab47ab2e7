"""Bodies that go on beyond their timeout: that is told, and their outcome counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from unit.actors.runner_stage import HANG_SECONDS, KINDS, Gate, Stage, both
from unit.actors.told import WaitingBox

from stepwell import current_step, step
from stepwell.actors.messages import StepDone
from stepwell.actors.runner import StepOrder
from stepwell.actors.runner import runner as runner_module
from stepwell.actors.store_events import StepOverran, StoreEvent
from stepwell.flow.context import StepContext

pytestmark = pytest.mark.threads


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.runner.stop(5.0)


def until_its_time_is_over() -> None:
    deadline = current_step().deadline
    assert deadline is not None
    while time.monotonic() <= deadline:
        pass


@step(name="late", timeout=0.01)
def late_on_a_thread(fails: bool) -> str:
    until_its_time_is_over()
    if fails:
        raise ValueError("late, too")
    return "late"


@step(name="late", timeout=0.01)
async def late_on_the_loop(fails: bool) -> str:
    return late_on_a_thread.fn(fails)


@step(name="late", timeout=0.01)
async def late_though_it_is_cancelled(fails: bool) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return late_on_a_thread.fn(fails)
    return ""


@pytest.mark.parametrize("of", [late_on_a_thread, late_on_the_loop, late_though_it_is_cancelled])
@pytest.mark.parametrize("fails", [False, True])
def test_a_body_that_goes_on_beyond_its_timeout_is_told_and_its_outcome_counts(
    stage: Stage, of: Any, fails: bool
) -> None:
    outcome = stage.start(of, fails, path="late#2", attempt=3).next()
    if fails:
        assert outcome.error.message == "late, too"
    else:
        assert outcome.value == b'"late"'
    [told] = stage.told()
    assert isinstance(told, StepOverran)
    assert (told.execution_id, told.flow, told.step, told.path, told.attempt) == ("e1", "f", "late", "late#2", 3)
    assert (told.key, told.trace) == ("e1:token", "")
    assert told.seconds > told.timeout == 0.01


def test_a_body_that_overran_is_told_with_its_trace(stage: Stage) -> None:
    order = stage.order(late_on_a_thread, False)
    traced = replace(order.context, traceparent="00-" + "4bf9" * 8 + "-00f067aa0ba902b7-01")
    box = WaitingBox()
    stage.runner.start(replace(order, context=traced), box)  # type: ignore[arg-type]
    box.next()
    [told] = stage.told()
    assert isinstance(told, StepOverran)
    assert told.trace == "4bf9" * 8


def test_a_body_is_held_to_the_deadline_that_it_reads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    given = runner_module.context_with_deadline

    def held_up(order: StepOrder) -> StepContext:
        context = given(order)
        until = time.monotonic() + 0.005
        while time.monotonic() <= until:
            pass
        return context

    monkeypatch.setattr(runner_module, "context_with_deadline", held_up)
    assert stage.start(late_on_the_loop, False).next().value == b'"late"'
    assert [type(each) for each in stage.told()] == [StepOverran]


@pytest.mark.parametrize("of", [late_on_a_thread, late_on_the_loop])
def test_who_can_t_hear_that_a_body_overran_does_not_keep_it_from_its_outcome(
    stage: Stage, caplog: pytest.LogCaptureFixture, of: Any
) -> None:
    running: list[int] = []
    heard = threading.Semaphore(0)

    def deaf(event: StoreEvent) -> None:
        running.append(stage.runner.running)
        stage.seen.append(event)
        heard.release()
        raise OSError("no space left")

    stage.ears = deaf
    for attempt in range(1, 4):
        box = stage.start(of, False, path=f"late#{attempt}", attempt=attempt)
        assert box.next().value == b'"late"'
        assert heard.acquire(timeout=HANG_SECONDS)
    assert running == [0, 0, 0], "it has its outcome before"
    assert len(stage.told()) == 3
    told = "step late#1 of execution e1 overran its timeout, which could not be told"
    assert told in [record.getMessage() for record in caplog.records]


@KINDS
@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_body_that_ends_in_time_is_nothing_to_tell(stage: Stage, kind: str, timeout: float | None) -> None:
    gate = Gate()
    gate.open()
    of = both(gate)[kind].with_options(timeout=timeout)
    assert isinstance(stage.start(of, 1).next(), StepDone)
    assert stage.told() == []


def test_an_async_body_that_is_stopped_at_its_timeout_did_not_overrun_it(stage: Stage) -> None:
    @step(timeout=0.01)
    async def waits() -> None:
        await asyncio.Event().wait()

    assert stage.start(waits).next().kind == "timeout"
    assert stage.told() == []
