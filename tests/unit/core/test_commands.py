"""Every command meets every status: what it does, or the exact reason why not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from stepwell import Cancelled, FatalError, Retry, StepFailed, flow, gather, sleep, step, wait_for
from stepwell.core import inputs
from stepwell.core.checkpoint import APPLIED_LIMIT
from stepwell.core.inputs import SignalSent
from stepwell.core.records import Failure, Outcome
from stepwell.core.rules.commands import SIGNALS_BUFFERED_MAX, retry
from stepwell.core.status import STATUSES
from stepwell.testing import LocalRun, local_execution


@step(retry=Retry(max_attempts=2))
def shaky() -> str:
    raise OSError("down")


@step
def fatal() -> None:
    raise FatalError("no")


@step
def undo() -> str:
    return "undone"


@flow
async def one_step() -> str:
    return await shaky()


@flow
async def approval() -> object:
    return await wait_for("approval")


@flow
async def nap() -> None:
    await sleep(10)


@flow
async def saga() -> None:
    try:
        await shaky()
    except StepFailed:
        await undo()
        raise


@flow
async def other_code() -> object:
    return await wait_for("another")


def queued() -> LocalRun:
    return LocalRun(one_step)


def running() -> LocalRun:
    return local_execution(one_step)


def backing_off() -> LocalRun:
    run = local_execution(one_step)
    run.step_once()
    return run


def signal_wait() -> LocalRun:
    return local_execution(approval)


def sleeping() -> LocalRun:
    return local_execution(nap)


def parked() -> LocalRun:
    run = local_execution(approval)
    return run.reload(flow=other_code)


def parked_and_fixed() -> LocalRun:
    # `retry` runs on whatever code is loaded by then; loading a parked row drives nothing.
    return parked().reload(flow=approval)


def completed() -> LocalRun:
    run = LocalRun(nap).run()
    assert run.checkpoint.status == "completed"
    return run


def failed() -> LocalRun:
    return LocalRun(one_step).run()


def compensated() -> LocalRun:
    return LocalRun(saga).run()


def cancelled() -> LocalRun:
    run = local_execution(approval)
    run.cancel()
    return run


def say_signal(run: LocalRun) -> Outcome | None:
    return run.signal("approval", {"by": "ann"})


def say_cancel(run: LocalRun) -> Outcome | None:
    return run.cancel()


def say_retry(run: LocalRun) -> Outcome | None:
    return run.retry()


Situation = Callable[[], LocalRun]
Command = Callable[[LocalRun], Outcome | None]
ENDED = "it has ended ({}); a signal can't reach it any more"
RESTART = "start a new execution to run it again"
WENT_ON = (
    "the flow went on after that failure (compensated): a retry would undo what it did since; start a new execution"
)
PATHS = "code diverged: the record has signal approval at wait, but the code has signal another there"
RESTING = "it is parked, so the signal is kept until it goes on"
KEPT = "nothing waits for 'approval' now, so it is kept until something does"

# situation, command -> applied?, status afterwards, reason ("signal of local refused: " and the like come before).
TABLE: dict[tuple[Situation, Command], tuple[bool, str, str]] = {
    (queued, say_signal): (True, "queued", KEPT),
    (queued, say_cancel): (True, "cancelled", ""),
    (queued, say_retry): (False, "queued", "it has not begun yet and starts by itself"),
    (running, say_signal): (True, "running", KEPT),
    (running, say_cancel): (True, "running", ""),
    (running, say_retry): (False, "running", "nothing is backing off; it is at shaky (running)"),
    (backing_off, say_signal): (True, "waiting", KEPT),
    (backing_off, say_cancel): (True, "cancelled", ""),
    (backing_off, say_retry): (True, "running", ""),
    (signal_wait, say_signal): (True, "completed", ""),
    (signal_wait, say_cancel): (True, "cancelled", ""),
    (signal_wait, say_retry): (False, "waiting", "nothing is backing off; it is at wait (waiting)"),
    (sleeping, say_signal): (True, "waiting", KEPT),
    (sleeping, say_cancel): (True, "cancelled", ""),
    (sleeping, say_retry): (False, "waiting", "nothing is backing off; it is at sleep (waiting)"),
    (parked, say_signal): (True, "parked", RESTING),
    (parked, say_cancel): (True, "cancelled", ""),
    (parked, say_retry): (False, "parked", PATHS),
    (parked_and_fixed, say_signal): (True, "parked", RESTING),
    (parked_and_fixed, say_cancel): (True, "cancelled", ""),
    (parked_and_fixed, say_retry): (True, "waiting", ""),
    (completed, say_signal): (False, "completed", ENDED.format("completed")),
    (completed, say_cancel): (False, "completed", "it has ended (completed)"),
    (completed, say_retry): (False, "completed", f"it completed; {RESTART}"),
    (failed, say_signal): (False, "error", ENDED.format("error")),
    (failed, say_cancel): (False, "error", "it has ended (error)"),
    (failed, say_retry): (True, "running", ""),
    (compensated, say_signal): (False, "error", ENDED.format("error")),
    (compensated, say_cancel): (False, "error", "it has ended (error)"),
    (compensated, say_retry): (False, "error", WENT_ON),
    (cancelled, say_signal): (False, "cancelled", ENDED.format("cancelled")),
    (cancelled, say_cancel): (True, "cancelled", "it was cancelled before"),
    (cancelled, say_retry): (False, "cancelled", f"it was cancelled; {RESTART}"),
}
SITUATIONS = list(dict.fromkeys(situation for situation, _ in TABLE))
COMMANDS = (say_signal, say_cancel, say_retry)


def test_the_table_has_every_status_with_every_command() -> None:
    assert set(TABLE) == set(product(SITUATIONS, COMMANDS))
    assert {situation().checkpoint.status for situation in SITUATIONS} == set(STATUSES)


@pytest.mark.parametrize(("situation", "command"), TABLE, ids=lambda f: f.__name__)
def test_a_command_is_applied_or_refused_with_its_reason(situation: Situation, command: Command) -> None:
    run = situation()
    before, row = run.checkpoint, {k: v for k, v in run.row.items() if k not in ("applied", "rev")}
    applied, status, reason = TABLE[situation, command]
    verb = command.__name__.removeprefix("say_")
    told = reason if applied else f"{verb} of local refused: {reason}"
    assert command(run) == Outcome(applied, status, told)
    assert run.checkpoint.status == status
    assert run.row["status"] == status.encode()
    if not applied:
        assert {k: v for k, v in run.row.items() if k not in ("applied", "rev")} == row
        assert run.checkpoint.open == before.open


@pytest.mark.parametrize("situation", [queued, completed, cancelled, parked])
def test_what_stands_in_the_way_of_a_retry_is_told_only_where_one_could_be(situation: Situation) -> None:
    checkpoint = situation().checkpoint
    told = str(retry(checkpoint, inputs.RetryAsked(1, "c", obstacle="not deployed here")))
    assert ("not deployed here" in told) == (checkpoint.status == "parked")


@pytest.mark.parametrize(("situation", "command"), TABLE, ids=lambda f: f.__name__)
def test_a_repeated_command_changes_nothing(situation: Situation, command: Command) -> None:
    run = situation()
    command(run)
    row, sent = dict(run.row), f"command-{run._commands}"
    repeat = {
        say_signal: lambda: run.signal("approval", 1, sent),
        say_cancel: lambda: run.cancel(sent),
        say_retry: lambda: run.retry(sent),
    }[command]
    assert repeat() is None
    assert run.row == row


EVENTS = [
    inputs.Begin(1),
    inputs.NotStarted(1, "shaky", 1),
    inputs.TimerFired(1, "shaky"),
    inputs.TimerFired(1, "sleep"),
    inputs.TimerFired(1, "nowhere"),
    inputs.AttemptSucceeded(1, "shaky", 9, 0, 1, b"1"),
    inputs.AttemptSucceeded(1, "nowhere", 1, 0, 1, b"1"),
    inputs.AttemptFailed(1, "nowhere", 1, 0, 1, Failure("E", "m"), True, Retry()),
]


@pytest.mark.parametrize("situation", [completed, failed, compensated, cancelled, parked], ids=lambda f: f.__name__)
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_what_comes_late_does_not_touch_an_execution_that_rests(situation: Situation, event: inputs.Input) -> None:
    run = situation()
    row = dict(run.row)
    run.feed(event)
    assert run.row == row


@pytest.mark.parametrize("situation", [queued, running, backing_off, signal_wait, sleeping], ids=lambda f: f.__name__)
@pytest.mark.parametrize("event", [*EVENTS[4:], inputs.NotStarted(1, "shaky", 1)], ids=repr)
def test_a_stale_result_does_not_touch_a_living_execution(situation: Situation, event: inputs.Input) -> None:
    run = situation()
    row = dict(run.row)
    run.feed(event)
    assert run.row == row


@pytest.mark.parametrize("situation", [running, backing_off, signal_wait, sleeping, queued], ids=lambda f: f.__name__)
def test_parking_stops_everything_and_retry_brings_it_back(situation: Situation) -> None:
    run = situation()
    opened, timers = run.checkpoint.open, set(run.timers)
    run.feed(inputs.ParkAsked(run.now_ms, "crashed", "three times"))
    assert run.checkpoint.status == "parked"
    assert run.timers == {}
    assert run.show()["error"]["type"] == "crashed"
    back = run.retry()
    assert back is not None
    assert back.applied
    assert run.checkpoint.error is None
    assert "error" not in run.row
    assert set(run.timers) == timers
    for path, op in opened.items():
        now = run.checkpoint.open[path]
        assert (now.token, now.attempt, now.status) == (op.token, op.attempt, op.status)


@pytest.mark.parametrize(("situation", "path"), [(backing_off, "shaky"), (sleeping, "sleep")])
def test_a_timer_that_was_on_its_way_when_the_execution_was_parked_does_nothing(
    situation: Situation, path: str
) -> None:
    run = situation()
    run.feed(inputs.ParkAsked(run.now_ms, "crashed"))
    row = dict(run.row)
    run.feed(inputs.TimerFired(run.now_ms + 60_000, path))
    assert (run.row, run.running) == (row, {})


def test_an_execution_that_is_parked_while_it_cancels_can_be_cancelled_for_good() -> None:
    run = local_execution(one_step)
    run.cancel()
    run.feed(inputs.ParkAsked(run.now_ms, "crashed"))
    assert run.cancel() == Outcome(True, "cancelled")


def test_a_cancel_while_parked_says_that_no_cleanup_ran_and_what_was_open() -> None:
    run = parked()
    run.signal("approval", 1)
    run.cancel()
    shown = run.show()
    assert "cleanup code did not run" in shown["error"]["message"]
    assert list(shown["error"]["open"]) == ["wait"]
    assert [field for field in run.row if field[:2] in ("p:", "s:")] == []


def test_a_signal_that_is_no_json_is_refused_and_the_row_stays_readable() -> None:
    run = signal_wait()
    turn = run.feed(SignalSent(run.now_ms, "c", "approval", b"{oops"))
    assert turn.answers[0].outcome.reason == "signal of local refused: its payload is not JSON"
    run.reload(clean=True)
    assert run.checkpoint.status == "waiting"


def test_signals_that_nobody_reads_are_bounded() -> None:
    run = local_execution(nap)
    for _ in range(SIGNALS_BUFFERED_MAX):
        run.signal("approval")
    refused = run.signal("approval")
    assert refused is not None
    assert not refused.applied
    assert len(run.checkpoint.signals) == SIGNALS_BUFFERED_MAX


def test_only_the_last_command_ids_are_kept() -> None:
    run = local_execution(nap)
    for _ in range(APPLIED_LIMIT + 5):
        run.signal("x")
    assert len(run.checkpoint.applied) == APPLIED_LIMIT
    assert run.reload(clean=True).checkpoint.applied[-1] == f"command-{APPLIED_LIMIT + 5}"


def test_a_cancel_that_comes_while_a_failing_gather_winds_up_is_not_lost() -> None:
    seen: list[str] = []

    @flow
    async def stubborn() -> str:
        try:
            await gather(fatal(), shaky())
        except StepFailed:
            seen.append("failed")
        try:
            await undo()
        except Cancelled:
            seen.append("cancelled")
            raise
        return "went on"

    run = local_execution(stubborn)
    run.finish("gather.0/fatal")
    cancel = run.cancel()
    assert cancel is not None
    assert cancel.applied
    run.finish("gather.1/shaky")
    assert seen == ["failed", "cancelled"]
    assert run.checkpoint.status == "cancelled"


def test_a_signal_that_is_kept_says_what_is_waited_for_instead() -> None:
    @flow
    async def approvals() -> object:
        return await wait_for("approval")

    run = local_execution(approvals)
    outcome = run.signal("aproval", 1)
    told = "nothing waits for 'aproval' now (it waits for 'approval'), so it is kept until something does"
    assert outcome == Outcome(True, "waiting", told)
    assert run.signal("approval", 2) == Outcome(True, "completed", "")
