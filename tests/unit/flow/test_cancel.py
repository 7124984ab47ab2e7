"""Cancel never overtakes a running attempt, and cleanup runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from stepwell import Cancelled, ExecutionCancelled, Retry, StepFailed, flow, gather, sleep, step, wait_for
from stepwell.core import events
from stepwell.testing import LocalRun, local_execution

calls: Counter[str] = Counter()
seen: list[str] = []
down: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    seen.clear()
    down.clear()


@step(retry=Retry(max_attempts=3))
def work(name: str = "work") -> str:
    calls[name] += 1
    if name in down:
        raise OSError("down")
    return name


@step
def undo(name: str = "undo") -> str:
    calls[name] += 1
    return name


async def guarded(name: str) -> str:
    try:
        await work(name)
        seen.append(f"{name} went on")
        return await work(name + " again")
    except Cancelled:
        seen.append(f"{name} cancelled")
        raise
    finally:
        await undo(f"undo {name}")


@flow
async def one() -> str:
    return await guarded("a")


@flow
async def sleeper() -> None:
    try:
        await sleep(3600)
    finally:
        await undo()


@flow
async def waiter() -> None:
    try:
        await wait_for("go", timeout=3600)
    finally:
        await undo()


@flow
async def branches() -> list[str]:
    try:
        return list(await gather(guarded("a"), guarded("b"), guarded("c")))
    finally:
        await undo("undo all")


def test_a_cancel_waits_for_the_running_attempt_and_records_its_result() -> None:
    run = local_execution(one)
    run.cancel()
    assert (seen, run.checkpoint.status, run.show()["cancelling"]) == ([], "running", True)
    run.finish("work")
    assert seen == ["a cancelled"]
    shown = run.show()
    assert shown["steps"][0]["result"] == "a"
    assert list(shown["open"]) == ["undo"]
    run.run()
    assert run.checkpoint.status == "cancelled"
    assert calls == {"a": 1, "undo a": 1}
    with pytest.raises(ExecutionCancelled, match="local was cancelled"):
        run.result()


def test_a_failure_that_comes_after_a_cancel_is_recorded_and_not_tried_again() -> None:
    down.add("a")
    run = local_execution(one)
    run.cancel()
    run.run()
    assert calls == {"a": 1, "undo a": 1}
    assert run.checkpoint.status == "cancelled"
    tries = run.show()["steps"][0]["attempts"]
    assert [(t["n"], t["error"]["message"], t["due_at"]) for t in tries] == [(1, "down", None)]


def test_a_cancel_during_a_backoff_comes_at_once() -> None:
    down.add("a")
    run = local_execution(one)
    run.finish("work")
    run.cancel()
    assert seen == ["a cancelled"]
    assert run.timers == {}
    assert [e.why for e in run.events if isinstance(e, events.BackoffLeft)] == ["cancel"]
    run.run()
    assert run.checkpoint.status == "cancelled"


@pytest.mark.parametrize("make", [sleeper, waiter], ids=["sleep", "wait"])
def test_a_cancel_during_a_wait_comes_at_once(make: object) -> None:
    run = local_execution(make)  # type: ignore[arg-type]
    begin = run.now_ms
    run.cancel()
    assert list(run.running) == ["undo"]
    run.run()
    assert run.checkpoint.status == "cancelled"
    assert (run.now_ms, run.timers) == (begin, {})


def test_a_cancel_of_a_queued_execution_runs_nothing() -> None:
    run = LocalRun(one)
    run.cancel()
    assert run.checkpoint.status == "cancelled"
    run.run()
    assert calls == {}


def test_a_cancel_reaches_every_branch_when_what_runs_there_has_ended() -> None:
    down.add("b")
    run = local_execution(branches)
    run.finish("gather.1/work")
    run.finish("gather.2/work")
    run.cancel()
    assert seen == ["c went on", "b cancelled"]
    run.finish("gather.0/work")
    run.finish("gather.1/undo")
    assert seen == ["c went on", "b cancelled", "a cancelled"]
    run.run()
    assert seen[-1] == "c cancelled"
    assert run.checkpoint.status == "cancelled"
    assert calls == {"a": 1, "b": 1, "c": 1, "c again": 1, "undo a": 1, "undo b": 1, "undo c": 1, "undo all": 1}


def test_a_step_that_fails_in_cleanup_makes_the_execution_an_error_that_can_be_retried() -> None:
    down.add("last")

    @flow
    async def messy() -> None:
        try:
            await sleep(60)
        finally:
            await work("last")

    run = local_execution(messy)
    run.cancel()
    run.run()
    assert (run.checkpoint.status, run.show()["error"]["failed_step"]["path"]) == ("error", "work")
    down.clear()
    run.retry()
    run.run()
    assert run.checkpoint.status == "cancelled"
    assert calls["last"] == 4


def test_a_flow_that_takes_a_cancel_as_a_hint_may_complete() -> None:
    @flow
    async def polite() -> str:
        try:
            await sleep(60)
        except Cancelled:
            return await undo("early end")
        return "slept"

    run = local_execution(polite)
    run.cancel()
    assert run.run().result() == "early end"


def test_branches_that_swallow_a_cancel_do_not_hide_it_from_the_flow() -> None:
    async def deaf() -> None:
        try:
            await sleep(60)
        except Cancelled:
            seen.append("swallowed")

    @flow
    async def top() -> str:
        await gather(deaf(), deaf())
        return await undo("after")

    run = local_execution(top)
    run.cancel()
    assert seen == ["swallowed", "swallowed"]
    assert run.checkpoint.status == "cancelled"
    assert calls == {}


def test_a_failed_cancelled_execution_that_is_retried_can_be_cancelled_again() -> None:
    down.add("last")

    @flow
    async def messy() -> None:
        try:
            await sleep(60)
        finally:
            await work("last")

    run = local_execution(messy)
    run.cancel()
    run.run()
    run.retry()
    again = run.cancel()
    assert again is not None
    assert (again.applied, again.reason) == (True, "")
    run.run()
    assert run.checkpoint.status == "cancelled"


def reloading(run: LocalRun, clean: bool) -> Callable[[], None]:
    return lambda: (run.reload(clean=clean), None)[1]


@pytest.mark.parametrize("clean", [True, False], ids=["passivated", "crashed"])
def test_a_cancel_survives_a_reload_at_every_point(clean: bool) -> None:
    down.add("b")
    run = local_execution(branches)
    run.finish("gather.1/work")
    run.cancel()
    run.reload(clean=clean)
    while not run.ended:
        assert run.step_once()
        run.reload(clean=True)
    assert run.checkpoint.status == "cancelled"
    assert {name: n for name, n in calls.items() if name.startswith("undo")} == {
        "undo a": 1, "undo b": 1, "undo c": 1, "undo all": 1,
    }  # fmt: skip


def test_what_was_cut_short_under_a_cancel_is_not_started_again() -> None:
    run = local_execution(one)
    run.cancel()
    run.reload()
    assert seen == ["a cancelled"]
    run.run()
    assert calls == {"undo a": 1}
    assert run.checkpoint.status == "cancelled"


def test_a_gather_that_fails_because_of_a_cancelled_branch_is_a_cancel() -> None:
    caught: list[BaseException] = []

    @flow
    async def top() -> None:
        try:
            await gather(sleep(60), work())
        except (StepFailed, Cancelled) as error:
            caught.append(error)
            raise

    run = local_execution(top)
    run.cancel()
    run.run()
    assert [type(error) for error in caught] == [Cancelled]
    assert run.checkpoint.status == "cancelled"


def test_a_cancel_amid_a_failing_gather_leaves_what_a_retry_needs() -> None:
    @flow
    async def top() -> list[str]:
        return list(await gather(work("a"), work("b")))

    down.add("a")
    run = local_execution(top)
    for _ in range(2):
        run.finish("gather.0/work")
        run.fire("gather.0/work")
    run.finish("gather.0/work")
    run.cancel()
    down.add("b")
    run.finish("gather.1/work")
    assert run.checkpoint.status == "error"
    assert sorted(run.show()["error"]["open"]) == ["gather.0/work", "gather.1/work"]
    down.clear()
    run.retry()
    assert run.run().result() == ["a", "b"]
