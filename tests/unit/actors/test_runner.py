"""The StepRunner on real threads: outcomes, adoption, lapsed leases, timeouts, hanging threads, the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from unit.actors.runner_stage import HANG_SECONDS, HOUR_MS, KINDS, PARTITION, Gate, Stage, an_hour_passes, both
from unit.actors.told import WaitingBox

from stepwell import FatalError, Retry, RetryAfter, current_step, step
from stepwell.actors.messages import StepDone, StepErred, StepHeld
from stepwell.actors.runner import watch as watch_module
from stepwell.core.errors import UsageError

pytestmark = pytest.mark.threads


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.runner.stop(5.0)


@KINDS
def test_it_knows_which_bodies_run_and_since_when(stage: Stage, kind: str) -> None:
    gate = Gate()
    before = stage.clock.now_ms()
    stage.start(both(gate)[kind], 1)
    gate.wait_entered()
    (attempt,) = stage.runner.at_work()
    assert before <= attempt.began_at <= stage.clock.now_ms()
    assert (attempt.order.context.execution_id, attempt.order.context.path) == ("e1", "step")
    if kind == "sync":  # there are two threads: the third has not begun
        stage.start(both(gate)[kind], 2, path="second")
        gate.wait_entered()
        stage.start(both(gate)[kind], 3, path="third")
        assert {each.order.context.path for each in stage.runner.at_work()} == {"step", "second"}
    gate.open()


@KINDS
def test_a_result_comes_back_encoded_with_its_attempt(stage: Stage, kind: str) -> None:
    gate = Gate()
    gate.open()
    done = stage.start(both(gate)[kind], 7, attempt=3).next()
    assert isinstance(done, StepDone)
    assert (done.path, done.attempt, done.value) == ("step", 3, b"7")
    assert stage.runner.running == 0


@KINDS
def test_a_body_knows_its_attempt_key_and_deadline(stage: Stage, kind: str) -> None:
    async def tell_async() -> list[object]:
        return told()

    def told() -> list[object]:
        context = current_step()
        left = (context.deadline or 0) - time.monotonic()
        return [context.idempotency_key, context.attempt, context.fencing_token, 0 < left <= 50]

    of = step(name="tell", timeout=50)(tell_async if kind == "async" else told)
    done = stage.start(of, attempt=2).next()
    assert isinstance(done, StepDone), done
    assert done.value == b'["e1:token",2,7,true]'
    with pytest.raises(UsageError):
        current_step()


@KINDS
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_an_outcome_says_when_its_body_ended(stage: Stage, kind: str, fails: bool) -> None:
    gate = Gate()

    async def body_async() -> int:
        await gate.pass_through_async()
        return 1 // (not fails)

    def body() -> int:
        gate.pass_through()
        return 1 // (not fails)

    box = stage.start(step(name="ends")(body_async if kind == "async" else body))
    gate.wait_entered()
    before = stage.clock.monotonic()
    an_hour_passes(stage.clock)
    gate.open()
    outcome = box.next()
    assert isinstance(outcome, StepErred if fails else StepDone)
    assert outcome.started_at is not None
    assert outcome.started_at + HOUR_MS <= outcome.ended_at <= stage.clock.now_ms()
    if isinstance(outcome, StepErred):
        assert before <= outcome.ended <= stage.clock.monotonic()


def raising(kind: str, error: BaseException) -> Any:
    def body() -> None:
        raise error

    async def body_async() -> None:
        raise error

    return step(name="raises", retry=Retry(max_attempts=3))(body_async if kind == "async" else body)


@KINDS
@pytest.mark.parametrize(
    ("error", "retryable", "after"),
    [
        (ValueError("no"), True, None),
        (FatalError("never"), False, None),
        (RetryAfter(7), True, 7.0),
        (SystemExit(3), True, None),
        (KeyboardInterrupt(), True, None),
        (asyncio.CancelledError(), True, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_a_body_raises_is_a_failed_attempt_and_the_runner_goes_on(
    stage: Stage, kind: str, error: BaseException, retryable: bool, after: float | None
) -> None:
    erred = stage.start(raising(kind, error)).next()
    assert isinstance(erred, StepErred)
    assert (erred.error.type, erred.retryable, erred.retry_after) == (type(error).__name__, retryable, after)
    gate = Gate()
    gate.open()
    assert isinstance(stage.start(both(gate)[kind], 1, path="other").next(), StepDone)


def test_a_result_that_can_t_be_stored_is_a_failure_that_is_not_retried(stage: Stage) -> None:
    @step
    async def odd() -> object:
        return object()

    erred = stage.start(odd).next()
    assert (erred.error.type, erred.error.reason, erred.retryable) == ("PayloadError", "payload", False)


def test_a_body_that_changes_its_arguments_does_not_change_the_flow_s(stage: Stage) -> None:
    @step
    def greedy(basket: list[int]) -> int:
        basket.append(1)
        return len(basket)

    basket = [1, 2]
    assert stage.start(greedy, basket).next().value == b"3"
    assert basket == [1, 2]


@KINDS
def test_no_body_starts_on_a_lease_that_may_have_lapsed(stage: Stage, kind: str) -> None:
    gate = Gate()
    stage.holdings.extend(PARTITION, stage.clock.monotonic() - 1)
    held = stage.start(both(gate)[kind], 1, attempt=4).next()
    assert held == StepHeld("step", 4)
    assert not gate.entered.acquire(blocking=False)
    assert stage.runner.running == 0


@KINDS
def test_the_lease_is_looked_at_when_a_thread_is_free_and_not_before(stage: Stage, kind: str) -> None:
    gate = Gate()
    steps = both(gate)
    first = [stage.start(steps["sync"], n, path=f"busy{n}") for n in range(2)]
    for _ in first:
        gate.wait_entered()
    if kind == "sync":
        third = stage.start(steps["sync"], 3, path="third")
        stage.holdings.extend(PARTITION, stage.clock.monotonic() - 1)
        gate.open()
        assert isinstance(third.next(), StepHeld)
    else:
        gate.open()
    assert [type(box.next()) for box in first] == [StepDone, StepDone]


@KINDS
def test_the_same_attempt_asked_for_again_is_adopted(stage: Stage, kind: str) -> None:
    gate = Gate()
    of = both(gate)[kind]
    dead = stage.start(of, 1)
    gate.wait_entered()
    heir = stage.start(of, 1)
    last = WaitingBox()
    assert stage.runner.adopt("e1", "step", 1, last)  # type: ignore[arg-type]
    assert not stage.runner.adopt("e1", "step", 2, last)  # type: ignore[arg-type]
    assert not stage.runner.adopt("e1", "other", 1, last)  # type: ignore[arg-type]
    gate.open()
    assert isinstance(last.next(), StepDone)
    assert dead.empty
    assert heir.empty
    assert not gate.entered.acquire(blocking=False), "the body ran once"


@KINDS
def test_the_next_attempt_waits_for_a_stale_one(stage: Stage, kind: str) -> None:
    gate = Gate()
    of = both(gate)[kind]
    stale = stage.start(of, 1)
    gate.wait_entered()
    fresh = stage.start(of, 2, attempt=2)
    assert not gate.entered.acquire(blocking=False)
    assert stage.runner.running == 1
    gate.open()
    assert stale.next().attempt == 1
    done = fresh.next()
    assert (done.attempt, done.value) == (2, b"2")


@KINDS
def test_an_outcome_is_told_again_until_it_is_settled(stage: Stage, kind: str) -> None:
    gate = Gate()
    gate.open()
    of = both(gate)[kind]
    told = stage.start(of, 1).next()
    assert stage.start(of, 1).next() == told
    heir = WaitingBox()
    assert stage.runner.adopt("e1", "step", 1, heir)  # type: ignore[arg-type]
    assert heir.next() == told
    assert stage.runner.running == 0
    stage.runner.settle("e1", "step", 1)
    assert not stage.runner.adopt("e1", "step", 1, heir)  # type: ignore[arg-type]
    assert [gate.entered.acquire(blocking=False) for _ in range(2)] == [True, False], "the body ran once"


def test_a_body_that_waits_for_a_thread_can_be_withdrawn_and_one_that_runs_can_not(stage: Stage) -> None:
    gate = Gate()
    stage.fill(gate)
    waiting = stage.start(both(gate)["sync"], 3, path="third")
    assert not stage.runner.withdraw("e1", "busy0", 1)
    assert stage.runner.withdraw("e1", "third", 1)
    assert stage.runner.running == 2
    gate.open()
    stage.start(both(gate)["sync"], 4, path="fourth").next()
    assert waiting.empty


def test_what_waits_behind_a_stale_attempt_can_be_withdrawn(stage: Stage) -> None:
    gate = Gate()
    of = both(gate)["sync"]
    stale = stage.start(of, 1)
    gate.wait_entered()
    fresh = stage.start(of, 2, attempt=2)
    assert stage.runner.withdraw("e1", "step", 2)
    gate.open()
    assert stale.next().attempt == 1
    stage.start(of, 3, path="other").next()
    assert fresh.empty


def test_a_body_does_not_begin_on_another_lease_than_its_declaration_s(stage: Stage) -> None:
    gate = Gate()
    stage.fill(gate)
    old = stage.start(both(gate)["sync"], 3, path="third")
    stage.regain()
    gate.open()
    stage.start(both(gate)["sync"], 4, path="fourth", lease="new lease").next()
    all_ended = threading.Event()
    stage.runner.close_intake(all_ended.set)
    assert all_ended.wait(HANG_SECONDS)
    assert old.empty


def test_an_attempt_that_is_declared_anew_while_it_waits_begins_under_the_new_lease(stage: Stage) -> None:
    gate = Gate()
    stage.fill(gate)
    old = stage.start(both(gate)["sync"], 3, path="third")
    stage.regain()
    new = stage.start(both(gate)["sync"], 3, path="third", lease="new lease")
    gate.open()
    assert isinstance(new.next(), StepDone)
    assert old.empty


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_a_task_of_a_body_raises_does_not_end_the_loop(stage: Stage, error: type[BaseException]) -> None:
    async def exits() -> None:
        raise error

    @step
    async def careless() -> None:
        await asyncio.gather(asyncio.create_task(exits()))

    @step
    async def innocent() -> int:
        return 7

    assert stage.start(careless).next().error.type == error.__name__
    assert stage.start(innocent, path="other").next().value == b"7"


def test_a_body_that_stops_the_loop_does_not_end_it(stage: Stage) -> None:
    @step
    async def stops() -> int:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return 1

    assert stage.start(stops).next().value == b"1"
    assert stage.start(stops, path="other").next().value == b"1"


def test_without_any_thread_to_have_an_attempt_is_held_and_can_be_asked_for_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate = Gate()
    gate.open()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        held = stage.start(both(gate)["sync"], 1).next()
    assert held == StepHeld("step", 1)
    assert stage.runner.running == 0
    assert isinstance(stage.start(both(gate)["sync"], 1).next(), StepDone)


def test_an_async_body_is_cancelled_at_its_timeout_and_ends_first(stage: Stage) -> None:
    cleaned: list[str] = []

    @step(timeout=0.01)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("cleaned")

    erred = stage.start(slow).next()
    assert (erred.error.type, erred.retryable) == ("StepTimeout", True)
    assert "0.01 s" in erred.error.message
    assert cleaned == ["cleaned"]


def test_a_timeout_error_of_the_body_s_own_is_not_ours(stage: Stage) -> None:
    erred = stage.start(step(name="own", timeout=100)(raising("async", TimeoutError("theirs")).fn)).next()
    assert (erred.error.type, erred.error.message) == ("TimeoutError", "theirs")


def test_a_thread_that_hangs_beyond_its_timeout_frees_its_slot_and_its_result_still_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "GIVE_UP_SECONDS", 0.0)
    hang, quick = Gate(), Gate()
    quick.open()

    @step(name="hangs", timeout=0.01)
    def hangs(n: int) -> int:
        hang.pass_through()
        return n

    hanging = [stage.start(hangs, n, path=f"hang{n}") for n in range(2)]
    for _ in hanging:
        hang.wait_entered()
    waiting = stage.start(both(quick)["sync"], 7)
    assert waiting.next().value == b"7", "there is a thread for it"
    assert 1 <= stage.runner.given_up <= 2
    assert all(box.empty for box in hanging), "an execution waits until its body has ended"
    hang.open()
    assert [box.next().value for box in hanging] == [b"0", b"1"]
    after = [stage.start(both(quick)["sync"], n, path=f"after{n}") for n in range(4)]
    assert [box.next().value for box in after] == [b"0", b"1", b"2", b"3"]
    assert stage.runner.given_up == 0


def test_hanging_threads_are_given_up_within_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "GIVE_UP_SECONDS", 0.0)
    hang = Gate()

    @step(name="hangs", timeout=0.01)
    def hangs(n: int) -> int:
        hang.pass_through()
        return n

    boxes = [stage.start(hangs, n, path=f"hang{n}") for n in range(8)]
    for _ in range(4):  # two threads, and two more for those that were given up
        hang.wait_entered()
    assert stage.runner.given_up <= 2
    hang.open()
    assert sorted(int(box.next().value) for box in boxes) == list(range(8))


@KINDS
def test_after_the_intake_is_closed_nothing_begins_and_the_last_end_is_told(stage: Stage, kind: str) -> None:
    gate, idle = Gate(), threading.Event()
    steps = both(gate)
    running = stage.start(steps[kind], 1)
    gate.wait_entered()
    stage.runner.close_intake(idle.set)
    late = stage.start(steps[kind], 2, path="late")
    assert not idle.is_set()
    gate.open()
    assert isinstance(running.next(), StepDone)
    assert idle.wait(HANG_SECONDS)
    assert late.empty


def test_what_waits_for_a_thread_when_the_intake_closes_never_begins(stage: Stage) -> None:
    gate, idle = Gate(), threading.Event()
    of = both(gate)["sync"]
    boxes = [stage.start(of, n, path=f"p{n}") for n in range(5)]
    for _ in range(2):
        gate.wait_entered()
    stage.runner.close_intake(idle.set)
    gate.open()
    assert idle.wait(HANG_SECONDS)
    assert [box.empty for box in boxes] == [False, False, True, True, True]


def test_an_idle_runner_says_so_at_once(stage: Stage) -> None:
    idle = threading.Event()
    stage.runner.close_intake(idle.set)
    assert idle.is_set()


def test_stop_cancels_async_bodies_and_drops_their_outcomes(stage: Stage) -> None:
    gate = Gate()
    ended: list[str] = []

    @step
    async def endless() -> None:
        gate.entered.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    box = stage.start(endless)
    gate.wait_entered()
    stage.runner.stop(HANG_SECONDS)
    assert ended == ["cancelled"]
    assert box.empty


def test_a_sync_body_that_ends_after_the_stop_harms_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[object] = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    gate = Gate()

    @step(name="late", timeout=100)
    def late() -> int:
        gate.pass_through()
        return 1

    box = stage.start(late)
    gate.wait_entered()
    stage.runner.stop(5.0)
    gate.open()
    assert isinstance(box.next(), StepDone)
    assert broken == []


def test_many_attempts_at_once_all_come_back(stage: Stage) -> None:
    gate = Gate()
    gate.open()
    steps = both(gate)
    boxes: list[Callable[[], Any]] = []
    for n in range(200):
        boxes.append(stage.start(steps["async" if n % 2 else "sync"], n, path=f"p{n}").next)
    assert [int(take().value) for take in boxes] == list(range(200))
