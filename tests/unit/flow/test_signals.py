"""Signals and timers: kept until they are waited for, read once, and timeouts that are errors of their own."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    ExecutionFailed,
    FatalError,
    SignalTimeout,
    days,
    flow,
    gather,
    hours,
    minutes,
    sleep,
    step,
    wait_for,
)
from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.inputs import TimerFired
from stepwell.testing import START_MS, LocalRun, local_execution, run_local

down: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    down.clear()


@step
def tell(text: str) -> str:
    if text in down:
        raise FatalError("no")
    return text


@flow
async def two_approvals() -> list[Any]:
    return [await wait_for("approval"), await wait_for("approval")]


@flow
async def patient() -> str:
    try:
        return f"yes: {await wait_for('approval', timeout=timedelta(hours=2))}"
    except SignalTimeout as error:
        return await tell(f"no: {error}")


def test_a_signal_wakes_the_wait_and_brings_its_payload() -> None:
    run = local_execution(patient)
    assert run.checkpoint.status == "waiting"
    run.signal("approval", {"by": ["ann", None]})
    assert run.result() == "yes: {'by': ['ann', None]}"
    assert run.timers == {}


def test_signals_that_come_early_are_kept_in_their_order() -> None:
    run = LocalRun(two_approvals)
    run.signal("approval", 1)
    run.begin()
    run.signal("approval", 2)
    assert run.result() == [1, 2]
    assert [field for field in run.row if field.startswith("s:")] == []


def test_a_signal_of_another_name_is_kept_for_later() -> None:
    @flow
    async def mixed() -> list[Any]:
        return [await wait_for("a"), await wait_for("b")]

    run = local_execution(mixed)
    run.signal("b", "B")
    assert run.checkpoint.status == "waiting"
    run.reload(clean=True)
    run.signal("a", "A")
    assert run.result() == ["A", "B"]


def test_two_waits_for_one_name_are_served_in_their_order() -> None:
    @flow
    async def both() -> list[Any]:
        return list(await gather(wait_for("x"), wait_for("x")))

    run = local_execution(both)
    run.signal("x", 1)
    run.signal("x", 2)
    assert run.result() == [1, 2]


def test_a_wait_that_times_out_is_an_error_that_the_flow_may_catch() -> None:
    run = local_execution(patient)
    run.step_once()
    assert run.run().result().endswith("did not come within 7200 s (wait)")
    assert run.now_ms == START_MS + 7_200_000
    assert run.show()["waits"][0]["status"] == "timed_out"


def test_a_timeout_that_nobody_catches_is_the_flows_error() -> None:
    @flow
    async def strict() -> None:
        await wait_for("never", timeout=minutes(1))

    with pytest.raises(ExecutionFailed, match="SignalTimeout"):
        run_local(strict)
    assert issubclass(SignalTimeout, TimeoutError)


def test_a_timer_that_fires_after_its_signal_does_nothing() -> None:
    @flow
    async def then_sleep() -> object:
        got = await wait_for("x", timeout=5)
        await sleep(days(1))
        return got

    run = local_execution(then_sleep)
    run.signal("x", "early")
    row = dict(run.row)
    run.feed(TimerFired(run.now_ms + 5000, "wait"))
    assert run.row == row
    assert run.run().result() == "early"


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (lambda: sleep(30), 30.0),
        (lambda: sleep(0.0001), 0.001),
        (lambda: sleep(hours=1, minutes=1), 3660.0),
        (lambda: sleep(timedelta(days=1)), 86400.0),
        (lambda: sleep(days(365)), 31_536_000.0),
        (lambda: sleep(hours(2)), 7200.0),
        (lambda: sleep(), 0.0),
    ],
)
def test_a_sleep_lasts_as_long_as_it_says_rounded_up_to_a_millisecond(duration: Any, seconds: float) -> None:
    @flow
    async def nap() -> None:
        await duration()

    run = LocalRun(nap).run()
    assert run.now_ms - START_MS == seconds * 1000


@pytest.mark.parametrize("wrong", [-1, "5", True, float("nan"), float("inf"), timedelta(days=-1)], ids=repr)
def test_a_duration_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="number of seconds"):
        sleep(wrong)
    with pytest.raises(UsageError, match="timeout of wait_for"):
        wait_for("x", timeout=wrong)


def test_an_odd_signal_name_is_refused() -> None:
    with pytest.raises(InvalidName, match="signal name"):
        wait_for("a b")


def test_a_wait_is_not_longer_after_a_reload() -> None:
    run = local_execution(patient)
    run.advance(3600)
    run.reload(clean=True)
    run.run()
    assert run.now_ms == START_MS + 7_200_000


def test_a_signal_that_comes_while_parked_reaches_its_wait_after_the_fix() -> None:
    @flow
    async def other() -> None:
        await sleep(1)

    run = local_execution(patient)
    run.reload(flow=other)
    assert run.checkpoint.status == "parked"
    run.signal("approval", 7)
    run.reload(flow=patient)
    run.retry()
    assert run.run().result() == "yes: 7"
    assert run.timers == {}


def test_a_signal_for_a_later_wait_survives_a_failure_and_its_retry() -> None:
    @flow
    async def risky() -> object:
        await tell("first")
        return await wait_for("approval")

    down.add("first")
    run = local_execution(risky)
    run.signal("approval", "given early")
    run.run()
    assert run.checkpoint.status == "error"
    down.clear()
    run.reload()
    run.retry()
    assert run.run().result() == "given early"


def test_a_signal_that_came_while_a_gather_wound_up_reaches_the_wait_that_a_retry_brings_back() -> None:
    @flow
    async def both() -> list[object]:
        return list(await gather(tell("a"), tell("slow"), wait_for("go", timeout=3600)))

    down.add("a")
    run = local_execution(both)
    run.finish("gather.0/tell")
    run.signal("go", "now")
    run.finish("gather.1/tell")
    assert run.checkpoint.status == "error"
    down.clear()
    run.retry()
    assert run.run().result() == ["a", "slow", "now"]


def test_a_wait_that_a_retry_brings_back_ends_when_it_would_have_ended() -> None:
    @flow
    async def both() -> list[object]:
        return list(await gather(tell("a"), sleep(3600)))

    down.add("a")
    run = local_execution(both)
    run.finish("gather.0/tell")
    run.advance(3000)
    down.clear()
    run.retry()
    assert run.run().result() == ["a", None]
    assert run.now_ms == START_MS + 3_600_000


def test_completed_executions_keep_no_signals() -> None:
    run = local_execution(patient)
    run.signal("unread")
    run.signal("approval")
    assert run.ended
    assert [field for field in run.row if field.startswith("s:")] == []


def test_a_timeout_names_its_signal_and_keeps_its_facts_when_it_is_pickled() -> None:
    error = SignalTimeout("gather.1/wait", 2, "go")
    assert str(error) == "signal 'go' did not come within 2 s (gather.1/wait)"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.seconds, again.name) == (str(error), "gather.1/wait", 2, "go")
