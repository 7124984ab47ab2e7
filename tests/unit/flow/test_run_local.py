"""`run_local`, what people test their own flows with."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from typing import Any

import pytest

from stepwell import (
    ExecutionCancelled,
    ExecutionFailed,
    Retry,
    current_step,
    flow,
    gather,
    hours,
    sleep,
    step,
    wait_for,
)
from stepwell.core.errors import Cancelled, Diverged, InvalidInput, InvalidName, StepFailed, UsageError
from stepwell.testing import START_MS, LocalRun, local_execution, run_local


@step(retry=Retry(max_attempts=3, base=60))
async def flaky(fails: int) -> int:
    if current_step().attempt <= fails:
        raise ConnectionError("reset")
    return current_step().attempt


@flow
async def order(fails: int = 0, wait: bool = False) -> dict[str, Any]:
    attempt = await flaky(fails)
    await sleep(hours=24)
    answer = await wait_for("approval", timeout=hours(1)) if wait else None
    return {"attempt": attempt, "answer": answer}


def test_it_returns_the_result_and_waits_for_nothing() -> None:
    assert run_local(order, {"fails": 2}) == {"attempt": 3, "answer": None}
    assert run_local(order) == {"attempt": 1, "answer": None}


def test_signals_are_there_from_the_start_or_come_later() -> None:
    assert run_local(order, {"wait": True}, signals=[("approval", "early")])["answer"] == "early"
    late = run_local(order, {"wait": True}, signals=[(86_400 + 1800, "approval", {"by": "ann"})])
    assert late["answer"] == {"by": "ann"}
    with pytest.raises(ExecutionFailed, match="SignalTimeout"):
        run_local(order, {"wait": True}, signals=[(86_400 + 3601, "approval", "too late")])


def test_a_failed_execution_is_raised_as_the_client_would() -> None:
    with pytest.raises(ExecutionFailed, match="ConnectionError: reset") as caught:
        run_local(order, {"fails": 9}, execution_id="order-7")
    assert caught.value.execution_id == "order-7"
    assert caught.value.error["failed_step"]["path"] == "flaky"
    assert run_local(order, {"fails": 9}, raise_on_error=False)["attempts"] == 3


def test_a_flow_that_cancels_itself_is_raised_as_cancelled() -> None:
    @flow
    async def gives_up() -> None:
        raise Cancelled

    with pytest.raises(ExecutionCancelled):
        run_local(gives_up)


@pytest.mark.parametrize(
    ("input", "told"),
    [
        ({"fails": "many"}, "does not fit its parameters.*fails"),
        ({"oops": 1}, r"unknown oops \(it takes fails, wait\)"),
        ([1], "must be a JSON object"),
        ({"fails": object()}, "can't be stored"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(input: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        run_local(order, input)


def test_an_odd_execution_id_is_refused() -> None:
    with pytest.raises(InvalidName, match="execution id"):
        run_local(order, execution_id="a b")


def test_a_wait_for_a_signal_that_never_comes_says_which() -> None:
    @flow
    async def stuck() -> None:
        await wait_for("approval")

    with pytest.raises(UsageError, match="waits for signal 'approval' at wait; send the signal"):
        run_local(stuck)


def test_an_endless_flow_is_stopped() -> None:
    @flow
    async def endless() -> None:
        while True:
            await sleep(1)

    with pytest.raises(UsageError, match="flow endless did not end within 50 steps: it waits for sleep#5"):
        run_local(endless, max_steps=50)


def test_async_steps_share_one_event_loop() -> None:
    loops = set()

    @step
    async def where() -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())

    @flow
    async def twice() -> None:
        await where()
        await where()

    run_local(twice)
    assert len(loops) == 1
    assert all(loop.is_closed() for loop in loops)


def test_inside_a_running_event_loop_it_says_what_to_do() -> None:
    async def test() -> None:
        run_local(order)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(UsageError, match="plain `def` test"):
            loop.run_until_complete(test())
    finally:
        loop.close()


def test_a_result_is_there_only_at_the_end() -> None:
    run = local_execution(order)
    with pytest.raises(UsageError, match="has not ended, it is running: it waits for flaky"):
        run.result()
    assert run.run().result() == {"attempt": 1, "answer": None}
    assert run.now_ms == START_MS + 86_400_000


def test_a_run_can_be_looked_at_turn_by_turn() -> None:
    run = LocalRun(order, {"fails": 1})
    assert run.show()["status"] == "queued"
    run.begin()
    assert run.running == {"flaky": 1}
    assert run.step_once()
    assert list(run.timers) == ["flaky"]
    assert run.step_once()
    assert run.now_ms - START_MS >= 60_000
    assert [type(e).__name__ for e in run.events] == ["ExecutionBegan", "AttemptFailed", "BackoffLeft"]
    assert len(run.commits) == 3


def test_a_failed_step_is_raised_from_what_it_raised() -> None:
    with pytest.raises(ExecutionFailed) as caught:
        run_local(order, {"fails": 9})
    failed = caught.value.__cause__
    assert isinstance(failed, StepFailed)
    original = failed.__cause__
    assert isinstance(original, ConnectionError)
    assert traceback.extract_tb(original.__traceback__)[-1].name == "flaky"
    assert traceback.extract_tb(failed.__traceback__)[-1].name != "run_local"
    assert "order" in [frame.name for frame in traceback.extract_tb(failed.__traceback__)]


def test_an_error_of_the_flow_itself_is_raised_from_it() -> None:
    @flow
    async def broken() -> None:
        await flaky(0)
        raise KeyError("total")

    with pytest.raises(ExecutionFailed) as caught:
        run_local(broken)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failure_that_the_flow_replaced_keeps_its_own_cause() -> None:
    @flow
    async def wraps() -> None:
        try:
            await flaky(9)
        except StepFailed as error:
            raise ValueError("no order") from error

    with pytest.raises(ExecutionFailed) as caught:
        run_local(wraps)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.__cause__.__cause__, StepFailed)


def test_a_flow_whose_way_depends_on_chance_is_found_out() -> None:
    chance = itertools.cycle([True, False])

    @flow
    async def gambler() -> None:
        if next(chance):
            await sleep(1)
        else:
            await flaky(0)

    with pytest.raises(Diverged, match=r"flow gambler took another way.*sleep.*replay=False leaves this check out"):
        run_local(gambler)
    assert run_local(gambler, replay=False) is None


def test_a_flow_that_waits_for_more_each_time_is_found_out() -> None:
    sizes = itertools.count(2)

    @flow
    async def growing() -> None:
        await gather(*(sleep(1) for _ in range(next(sizes))))

    with pytest.raises(Diverged, match=r"it came to gather.2/sleep"):
        run_local(growing)


def test_a_flow_that_ends_earlier_the_second_time_is_found_out() -> None:
    chance = itertools.chain([False], itertools.repeat(True))

    @flow
    async def impatient() -> None:
        if next(chance):
            return
        await sleep(1)

    with pytest.raises(Diverged, match="flow impatient took another way"):
        run_local(impatient)


def test_a_long_run_is_not_replayed_at_each_commit() -> None:
    starts = []

    @flow
    async def long() -> None:
        starts.append(1)
        for _ in range(500):
            await sleep(1)

    run_local(long)
    assert len(starts) < 120


@pytest.mark.parametrize(
    ("given", "told"),
    [(flaky, "'flaky' is a step: call it like any function"), (print, "expected a function decorated with @flow")],
)
def test_what_is_no_flow_is_refused(given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run_local(given)
