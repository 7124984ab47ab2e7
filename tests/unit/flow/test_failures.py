"""Failing steps: budgets, what the flow gets, failing gathers, and what `retry` brings back."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from stepwell import ExecutionFailed, FatalError, Retry, RetryAfter, StepFailed, flow, gather, sleep, step, wait_for
from stepwell.core import events
from stepwell.core.inputs import AttemptSucceeded, Begin, NotStarted, ParkAsked
from stepwell.core.status import STEP_BACKOFF
from stepwell.flow.machine import Machine
from stepwell.testing import LocalRun, local_execution, run_local

calls: Counter[str] = Counter()
down: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    down.clear()


@step(retry=Retry(max_attempts=5, base=0.2))
def charge(name: str = "charge") -> str:
    calls[name] += 1
    if name in down:
        raise OSError(f"{name} is down")
    return name


@step
def note(text: str) -> str:
    calls["note"] += 1
    return text


@step
def fatal(name: str = "fatal") -> str:
    calls[name] += 1
    if name in down:
        raise FatalError("card stolen")
    return name


@flow
async def simple() -> str:
    return await charge()


@flow
async def three() -> list[str]:
    return [await note("before"), await charge(), await note("after")]


def test_a_step_that_always_fails_ends_after_its_budget_with_growing_delays() -> None:
    down.add("charge")
    run = LocalRun(simple).run()
    shown = run.show()
    tries = shown["steps"][0]["attempts"]
    gaps = [b["started_at"] - a["ended_at"] for a, b in itertools.pairwise(tries)]
    assert [t["n"] for t in tries] == [1, 2, 3, 4, 5]
    assert all(gap >= floor for gap, floor in zip(gaps, (200, 400, 800, 1600), strict=True))
    assert gaps == sorted(set(gaps))
    assert [t["due_at"] for t in tries] == [t["started_at"] for t in tries[1:]] + [None]
    assert (shown["status"], shown["error"]["attempts"], shown["open"]) == ("error", 5, {})
    assert shown["error"]["failed_step"]["path"] == "charge"
    assert calls["charge"] == 5


def test_the_told_delay_is_the_recorded_delay() -> None:
    down.add("charge")
    run = LocalRun(simple).run()
    told = [e for e in run.events if isinstance(e, events.AttemptFailed)]
    tries = run.show()["steps"][0]["attempts"]
    assert [(e.attempt, e.due_at, e.delay_ms) for e in told] == [
        (t["n"], t["due_at"], t["due_at"] - t["ended_at"]) for t in tries[:-1]
    ]
    assert {e.max_attempts for e in told} == {5}
    gave_up = [e for e in run.events if isinstance(e, events.StepGaveUp)]
    assert [(e.attempt, e.reason) for e in gave_up] == [(5, "exhausted")]
    ended = [e for e in run.events if isinstance(e, events.ExecutionEnded)]
    assert [(e.status, e.reason) for e in ended] == [("error", "step failed")]


def test_a_failing_second_step_never_runs_the_first_again() -> None:
    down.add("charge")
    run = LocalRun(three).run()
    assert calls == {"note": 1, "charge": 5}
    down.clear()
    run.retry()
    run.run()
    assert run.result() == ["before", "charge", "after"]
    assert calls == {"note": 2, "charge": 6}


def test_a_wait_that_an_error_asks_for_is_kept() -> None:
    @step(retry=Retry(max_attempts=3, retry_after_max=100))
    def throttled() -> str:
        calls["throttled"] += 1
        if calls["throttled"] == 1:
            raise RetryAfter(30)
        if calls["throttled"] == 2:
            raise RetryAfter(1e6)
        return "ok"

    @flow
    async def polite() -> str:
        return await throttled()

    run = local_execution(polite)
    begin = run.now_ms
    run.run()
    assert [t["due_at"] for t in run.show()["steps"][0]["attempts"]] == [begin + 30_000, begin + 130_000, None]
    assert [e.asked for e in run.events if isinstance(e, events.AttemptFailed)] == [True, True]


def test_a_fatal_error_is_not_tried_again() -> None:
    down.add("fatal")

    @flow
    async def once() -> str:
        return await fatal()

    with pytest.raises(ExecutionFailed, match="card stolen") as caught:
        run_local(once)
    assert caught.value.error["attempts"] == 1
    assert calls["fatal"] == 1


def test_a_flow_may_catch_a_failure_and_go_on() -> None:
    down.add("charge")

    @flow
    async def forgiving() -> list[Any]:
        try:
            await charge()
        except StepFailed as failure:
            return [failure.type, failure.message, failure.attempts, failure.path, await note("sorry")]
        return []

    assert run_local(forgiving) == ["OSError", "charge is down", 5, "charge", "sorry"]


def test_the_budget_belongs_to_each_logical_step() -> None:
    down.add("b")

    @flow
    async def loop() -> int:
        failures = 0
        for _ in range(3):
            await charge("a")
            try:
                await charge("b")
            except StepFailed:
                failures += 1
        return failures

    run = LocalRun(loop).run()
    assert run.result() == 3
    assert calls == {"a": 3, "b": 15}


# Retry of a failed execution.


def test_retry_goes_on_with_the_same_token_a_fresh_budget_and_the_next_number() -> None:
    down.add("charge")
    run = LocalRun(simple).run()
    token = run.show()["error"]["failed_step"]["token"]
    run.retry()
    run.run()
    shown = run.show()
    assert (shown["status"], shown["error"]["attempts"]) == ("error", 10)
    tries = shown["steps"][0]["attempts"]
    assert [t["n"] for t in tries] == list(range(1, 11))
    assert shown["error"]["failed_step"]["token"] == token
    assert tries[5]["due_at"] - tries[5]["ended_at"] < 0.3 * 1000, "the delays begin anew"
    assert len(shown["failures"]) == 1
    down.clear()
    run.retry()
    assert run.run().result() == "charge"
    assert run.show()["steps"][0]["attempts"][-1]["n"] == 11


def test_a_translated_failure_can_be_retried() -> None:
    down.add("charge")

    @flow
    async def translated() -> str:
        try:
            return await charge()
        except StepFailed as failure:
            raise ValueError("could not charge") from failure

    run = LocalRun(translated).run()
    error = run.show()["error"]
    assert (error["type"], error["failed_step"]["path"], error["attempts"]) == ("ValueError", "charge", 5)
    down.clear()
    run.retry()
    assert run.run().result() == "charge"
    assert calls["charge"] == 6


def test_a_compensated_flow_is_not_retried_and_the_reason_is_told() -> None:
    down.add("charge")

    @flow
    async def saga() -> str:
        try:
            return await charge()
        except StepFailed:
            await note("refund")
            raise

    run = LocalRun(saga).run()
    before = dict(run.row)
    refused = run.retry()
    assert refused is not None
    assert not refused.applied
    assert "the flow went on after that failure (compensated)" in refused.reason
    assert run.show()["error"]["compensated"]
    assert {k: v for k, v in run.row.items() if k not in ("applied", "rev")} == {
        k: v for k, v in before.items() if k not in ("applied", "rev")
    }


@pytest.mark.parametrize("cleanup", ["note", "sleep", "wait"])
def test_any_operation_in_finally_counts_as_going_on(cleanup: str) -> None:
    down.add("fatal")
    operations = {"note": lambda: note("x"), "sleep": lambda: sleep(1), "wait": lambda: wait_for("x", timeout=1)}

    @flow
    async def tidy() -> None:
        try:
            await fatal()
        finally:
            await operations[cleanup]()

    run = LocalRun(tidy).run()
    refused = run.retry()
    assert run.checkpoint.status == "error"
    if cleanup == "wait":  # its timeout is another error, of the flow's own, so the code is driven again
        assert run.show()["error"]["type"] == "SignalTimeout"
        return
    assert refused is not None
    assert "compensated" in refused.reason


def test_where_the_flows_own_code_raised_a_retry_drives_it_again() -> None:
    fixed: list[bool] = []

    @flow
    async def buggy() -> str:
        first = await note("first")
        if not fixed:
            raise ZeroDivisionError("oops")
        return first + await note("second")

    run = LocalRun(buggy).run()
    assert run.show()["error"]["type"] == "ZeroDivisionError"
    again = run.retry()
    assert again is not None
    assert again.applied
    assert (again.status, run.checkpoint.status) == ("error", "error"), "it raised again"
    fixed.append(True)
    run.retry()
    assert run.run().result() == "firstsecond"
    assert calls["note"] == 2, "what was recorded did not run again"


def test_a_failure_that_was_caught_long_ago_does_not_bar_a_retry_of_a_later_one() -> None:
    down.update(("a", "b"))

    @flow
    async def optional() -> str:
        try:
            await charge("a")
        except StepFailed:
            await note("without a")
        return await charge("b")

    run = LocalRun(optional).run()
    down.clear()
    run.retry()
    assert run.run().result() == "b"
    assert calls == {"a": 5, "note": 1, "b": 6}


def test_a_failure_swallowed_in_a_branch_is_over_when_the_gather_is() -> None:
    down.update(("a", "b"))

    async def maybe() -> str:
        try:
            return await fatal("a")
        except StepFailed:
            return "without"

    @flow
    async def optional() -> list[str]:
        got = list(await gather(maybe(), note("x")))
        return [*got, await fatal("b")]

    run = LocalRun(optional).run()
    assert list(run.show()["error"]["open"]) == ["fatal"]
    down.clear()
    again = run.retry()
    assert again is not None
    assert again.applied
    assert run.run().result() == ["without", "x", "b"]
    assert calls == {"a": 1, "note": 1, "b": 2}


# Gathers that fail.


async def chain(name: str) -> str:
    await charge(name)
    return await note(name)


@flow
async def fan() -> list[str]:
    return list(await gather(fatal(), charge("slow"), charge("late"), chain("long")))


def failing_fan() -> LocalRun:
    """One branch failed for good while one backs off, one runs its step and one would start another."""
    down.update(("fatal", "late"))
    run = local_execution(fan)
    run.finish("gather.2/charge")
    run.finish("gather.0/fatal")
    return run


def test_when_a_gather_fails_nothing_new_starts_and_what_runs_is_recorded() -> None:
    run = failing_fan()
    assert run.checkpoint.status == "running", "the running ones end first"
    assert set(run.running) == {"gather.1/charge", "gather.3/charge"}
    assert run.timers == {}, "the backoff ended"
    run.finish("gather.3/charge")
    assert set(run.running) == {"gather.1/charge"}, "the chain's second step did not start"
    run.finish("gather.1/charge")
    shown = run.show()
    assert (shown["status"], shown["error"]["failed_step"]["path"]) == ("error", "gather.0/fatal")
    by_path = {s["path"]: s for s in shown["steps"]}
    assert by_path["gather.1/charge"]["result"] == "slow"
    assert by_path["gather.3/charge"]["result"] == "long"
    assert calls["note"] == 0


def test_retry_brings_all_branches_back_with_their_tokens_and_attempts() -> None:
    run = failing_fan()
    tokens = {s["path"]: s["token"] for s in run.show()["steps"]}
    run.finish("gather.3/charge")
    run.finish("gather.1/charge")
    down.clear()
    run.retry()
    opened = run.show()["open"]
    assert {path: op["attempt"] for path, op in opened.items()} == {
        "gather.0/fatal": 2,
        "gather.2/charge": 2,
        "gather.3/note": 1,
    }
    assert run.run().result() == ["fatal", "slow", "late", "long"]
    assert calls == {"fatal": 2, "slow": 1, "late": 2, "long": 1, "note": 1}
    assert {s["path"]: s["token"] for s in run.show()["steps"] if s["path"] in tokens} == tokens


def test_a_sibling_that_fails_while_the_gather_winds_up_keeps_its_own_budget() -> None:
    run = failing_fan()
    down.add("slow")
    run.finish("gather.1/charge")
    run.finish("gather.3/charge")
    left = run.show()["error"]["open"]["gather.1/charge"]
    assert (left["attempts"], left["status"]) == (1, "running")
    down.clear()
    down.add("slow")
    run.retry()
    run.run()
    assert calls["slow"] == 5, "the failed attempt before the retry counts"
    assert run.show()["error"]["failed_step"]["path"] == "gather.1/charge"


def test_retry_works_the_same_after_everything_was_reloaded() -> None:
    run = failing_fan()
    run.reload(clean=True)
    assert run.checkpoint.status == "error", "what was cut short in a failing gather does not start again"
    run.reload()
    down.clear()
    run.retry()
    run.reload(clean=True)
    assert run.run().result() == ["fatal", "slow", "late", "long"]
    assert (calls["fatal"], calls["late"]) == (2, 2)


def test_a_failing_gather_inside_a_gather_leaves_the_outer_branches_alone() -> None:
    down.add("fatal")

    async def inner() -> str:
        try:
            await gather(fatal(), charge("slow"))
        except StepFailed:
            return "caught"
        return "fine"

    @flow
    async def outer() -> list[str]:
        return list(await gather(inner(), chain("other")))

    run = local_execution(outer)
    run.finish("gather.0/gather.0/fatal")
    run.finish("gather.1/charge")
    assert "gather.1/note" in run.running, "a branch outside of the failing gather goes on"
    run.finish("gather.0/gather.1/charge")
    assert run.run().result() == ["caught", "other"]


def test_cleanup_of_a_cancelled_branch_runs_to_its_end() -> None:
    down.add("fatal")

    async def tidy() -> None:
        try:
            await sleep(60)
        finally:
            await note("one")
            await note("two")

    @flow
    async def mixed() -> None:
        await gather(fatal(), tidy(), tidy())

    run = local_execution(mixed)
    run.run()
    assert calls["note"] == 4
    assert run.show()["error"]["failed_step"]["path"] == "gather.0/fatal"
    assert run.show()["error"]["compensated"]


def test_cleanup_survives_a_sibling_that_ends_meanwhile() -> None:
    async def tidy(name: str) -> None:
        try:
            await charge(name)
        finally:
            await note(name)

    @flow
    async def mixed() -> None:
        down.add("fatal")
        await gather(tidy("a"), fatal(), gather(tidy("b"), charge("c")))

    for reload in (False, True):
        calls.clear()
        run = local_execution(mixed)
        run.finish("gather.1/fatal")
        run.finish("gather.0/charge")
        run.finish("gather.2/gather.0/charge")
        run.finish("gather.2/gather.1/charge")
        if reload:
            run.reload(clean=True)
        run.run()
        assert calls["note"] == 2
        assert run.checkpoint.status == "error"


def test_a_branch_that_raises_by_itself_stops_steps_declared_in_the_same_move() -> None:
    async def bug() -> None:
        await note("x")
        raise ValueError("bug")

    @flow
    async def both() -> None:
        await gather(bug(), chain("a"), charge("b"))

    run = local_execution(both)
    run.finish("gather.0/note")
    run.finish("gather.1/charge")
    run.finish("gather.2/charge")
    assert calls == {"note": 1, "a": 1, "b": 1}
    assert run.show()["error"]["type"] == "ValueError"


def test_a_retry_that_meets_the_same_bug_starts_nothing_beside_it() -> None:
    async def bug() -> None:
        await note("x")
        raise ValueError("bug")

    @flow
    async def both() -> None:
        await gather(bug(), charge("b"))

    down.add("b")
    run = local_execution(both)
    run.finish("gather.1/charge")
    run.finish("gather.0/note")
    assert run.checkpoint.status == "error"
    attempts = calls["b"]
    run.retry()
    assert run.checkpoint.status == "error"
    assert calls["b"] == attempts
    assert list(run.show()["error"]["open"]) == ["gather.1/charge"]
    assert run.show()["error"]["open"]["gather.1/charge"]["attempts"] == 1


# Results that come for nothing.


def test_late_and_repeated_results_are_dropped_and_counted() -> None:
    down.add("charge")
    run = local_execution(simple)
    failed = run.execute("charge")
    run.feed(failed)
    row = dict(run.row)
    run.feed(failed)
    run.feed(AttemptSucceeded(run.now_ms, "charge", 1, run.now_ms, run.now_ms, b'"stale"'))
    run.feed(AttemptSucceeded(run.now_ms, "charge", 2, run.now_ms, run.now_ms, b'"early"'))
    run.feed(AttemptSucceeded(run.now_ms, "nowhere", 1, run.now_ms, run.now_ms, b"1"))
    assert run.row == row
    assert run.checkpoint.open["charge"].status == STEP_BACKOFF
    dropped = [(e.path, e.attempt) for e in run.events if isinstance(e, events.ResultDropped)]
    assert dropped == [("charge", 1), ("charge", 1), ("charge", 2), ("nowhere", 1)]


def test_a_result_of_a_recorded_step_changes_nothing() -> None:
    run = local_execution(three)
    done = run.execute("note")
    run.feed(done)
    row = dict(run.row)
    run.feed(done)
    assert run.row == row


def test_an_attempt_that_never_began_keeps_its_number_for_the_retry() -> None:
    run = failing_fan()
    run.running.clear()
    run.feed(NotStarted(run.now_ms, "gather.1/charge", 1))
    run.feed(NotStarted(run.now_ms, "gather.3/charge", 1))
    left = run.show()["error"]["open"]
    assert (left["gather.1/charge"]["attempts"], left["gather.3/charge"]["attempts"]) == (0, 0)
    down.clear()
    run.retry()
    assert run.show()["open"]["gather.1/charge"]["attempt"] == 1
    assert run.run().result() == ["fatal", "slow", "late", "long"]


def test_a_result_that_comes_while_parked_is_kept_and_not_run_again() -> None:
    run = local_execution(three)
    run.step_once()
    done = run.execute("charge")
    run.feed(ParkAsked(run.now_ms, "crashed"))
    run.feed(done)
    assert run.checkpoint.status == "parked"
    run.retry()
    assert run.run().result() == ["before", "charge", "after"]
    assert calls["charge"] == 1


def test_a_failure_that_comes_while_parked_backs_off_when_it_is_unparked() -> None:
    down.add("charge")
    run = local_execution(simple)
    failed = run.execute("charge")
    run.feed(ParkAsked(run.now_ms, "crashed"))
    run.feed(failed)
    assert (run.checkpoint.status, run.timers) == ("parked", {})
    run.retry()
    assert list(run.timers) == ["charge"]
    run.run()
    assert calls["charge"] == 5


def test_a_machine_that_begins_twice_drives_its_code_once() -> None:
    run = local_execution(simple)
    machine: Machine = run._machine
    driver = machine._driver
    assert machine.feed(Begin(run.now_ms)).empty
    assert machine._driver is driver
