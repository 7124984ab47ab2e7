"""An outcome is decided on long after its body ended: what is told and what is due count from the body's end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stepwell import FatalError, Retry, RetryAfter, flow, gather, sleep, step
from stepwell.actors.messages import StepErred
from stepwell.actors.telling import attempt_failed
from stepwell.core import events
from stepwell.core.effects import ArmTimer
from stepwell.core.inputs import AttemptFailed, AttemptSucceeded
from stepwell.core.records import Failure, decode_attempt, decode_fact
from stepwell.core.transitions import decide
from stepwell.testing import LocalRun, local_execution

AWAY = 20  # seconds for which nobody can write down anything
BODY_MS = 10


@step
def fine(n: int) -> int:
    return n


@step(retry=Retry(max_attempts=3, base=5, factor=2, jitter=0))
def shaky() -> None:
    raise ConnectionError("down")


@step(retry=Retry(max_attempts=3, base=1, jitter=0))
def asks() -> None:
    raise RetryAfter(50)


@step
def fatal() -> None:
    raise FatalError("never")


@flow
async def works() -> int:
    return await fine(1)


@flow
async def tries() -> None:
    await shaky()


@flow
async def obeys() -> None:
    await asks()


@flow
async def ends() -> None:
    await fatal()


@flow
async def fails_beside() -> None:
    await gather(fatal(), shaky())


def heard(run: LocalRun, path: str, away: float = AWAY) -> AttemptSucceeded | AttemptFailed:
    """The outcome of a body that ran for 10 ms, as it is heard of so long after."""
    began = run.now_ms
    run.advance(BODY_MS / 1000)
    outcome = replace(run.execute(path), started_at=began)
    run.advance(away)
    outcome = replace(outcome, now=run.now_ms)
    return replace(outcome, passed_ms=round(away * 1000)) if isinstance(outcome, AttemptFailed) else outcome


def told(run: LocalRun, kind: type[events.Event]) -> events.Event:
    [event] = [each for each in run.events if type(each) is kind]
    return event


def test_a_result_ended_with_its_body() -> None:
    run = local_execution(works)
    outcome = heard(run, "fine")
    run.feed(outcome)
    fact = decode_fact(run.row["r:fine"])
    assert (fact.started_at, fact.ended_at) == (outcome.started_at, run.now_ms - AWAY * 1000)
    completed = told(run, events.StepCompleted)
    assert isinstance(completed, events.StepCompleted)
    assert completed.duration_ms == BODY_MS
    assert run.checkpoint.ended_at == run.now_ms  # nobody could go on before


@pytest.mark.pain(27)
def test_a_backoff_counts_from_the_end_of_the_body_and_is_over_at_once_if_it_is_by_then() -> None:
    run = local_execution(tries)
    outcome = heard(run, "shaky")
    run.feed(outcome)
    attempt = decode_attempt(run.row["a:shaky:1"])
    assert attempt.ended_at == outcome.ended_at == run.now_ms - AWAY * 1000
    assert attempt.due_at == attempt.ended_at + 5000
    failed = told(run, events.AttemptFailed)
    assert isinstance(failed, events.AttemptFailed)
    assert (failed.at, failed.delay_ms, failed.due_at) == (attempt.ended_at, 5000, attempt.due_at)
    assert failed.duration_ms == BODY_MS
    assert run.timers == {"shaky": run.now_ms}
    run.fire("shaky")
    assert run.checkpoint.open["shaky"].late_from == attempt.due_at


def test_what_is_left_of_a_longer_backoff_is_waited_for() -> None:
    run = local_execution(obeys)
    run.feed(heard(run, "asks"))
    attempt = decode_attempt(run.row["a:asks:1"])
    assert attempt.due_at == attempt.ended_at + 50_000
    assert run.timers == {"asks": run.now_ms + 30_000}
    assert run.timers["asks"] == attempt.due_at


@pytest.mark.pain(39)
@pytest.mark.parametrize("set_by", [3600, -3600], ids=["forward", "back"])
def test_a_clock_that_is_set_meanwhile_changes_no_delay(set_by: int) -> None:
    run = local_execution(tries)
    outcome = heard(run, "shaky", away=2)
    outcome = replace(outcome, now=outcome.now + set_by * 1000)
    cp, effects = decide(run.checkpoint, outcome)
    [timer] = [each for each in effects if isinstance(each, ArmTimer)]
    assert timer.delay_ms == 3000
    due, ended = cp.open["shaky"].due_at, min(outcome.ended_at, outcome.now)
    assert due == ended + 5000


@pytest.mark.parametrize("definition", [ends, fails_beside], ids=["alone", "in a gather"])
def test_a_last_failure_ended_with_its_body_and_its_execution_when_that_was_known(definition: object) -> None:
    run = local_execution(definition)  # type: ignore[arg-type]
    path = "fatal" if definition is ends else "gather.0/fatal"
    beside = heard(run, "gather.1/shaky", away=0) if definition is fails_beside else None
    outcome = heard(run, path)
    run.feed(outcome)
    if beside is not None:
        run.feed(replace(beside, now=run.now_ms, passed_ms=run.now_ms - beside.ended_at))
        attempt = decode_attempt(run.row["a:gather.1/shaky:1"])
        assert (attempt.ended_at, attempt.due_at) == (beside.ended_at, None)
        assert decode_fact(run.row["r:gather.1/shaky"]).ended_at == beside.ended_at
    assert decode_attempt(run.row[f"a:{path}:1"]).ended_at == outcome.ended_at
    assert decode_fact(run.row[f"r:{path}"]).ended_at == outcome.ended_at
    gave_up = next(each for each in run.events if isinstance(each, events.StepGaveUp))
    assert (gave_up.at, gave_up.duration_ms) == (outcome.ended_at, BODY_MS)
    assert run.checkpoint.status == "error"
    assert run.checkpoint.error is not None
    assert run.checkpoint.error.at == run.checkpoint.ended_at == run.now_ms


def test_a_sleep_that_follows_counts_from_when_the_outcome_was_known() -> None:
    @flow
    async def rests() -> None:
        await fine(1)
        await sleep(60)

    run = local_execution(rests)
    run.feed(heard(run, "fine"))
    assert run.timers == {"sleep": run.now_ms + 60_000}
    assert run.checkpoint.open["sleep"].due_at == run.now_ms + 60_000


@pytest.mark.parametrize("definition", [works, tries], ids=["result", "failure"])
def test_nothing_ends_after_it_is_recorded_whatever_a_thread_has_read(definition: object) -> None:
    run = local_execution(definition)  # type: ignore[arg-type]
    [path] = run.running
    run.feed(replace(run.execute(path), ended_at=run.now_ms + 1))
    if definition is works:
        assert decode_fact(run.row["r:fine"]).ended_at == run.now_ms
    else:
        attempt = decode_attempt(run.row["a:shaky:1"])
        assert (attempt.ended_at, attempt.due_at) == (run.now_ms, run.now_ms + 5000)


@pytest.mark.parametrize(("seconds", "passed_ms"), [(0.0, 0), (0.0004, 0), (0.3, 300), (1.9996, 1999), (20.0, 20_000)])
def test_what_has_passed_is_never_counted_too_high(seconds: float, passed_ms: int) -> None:
    message = StepErred("shaky", 1, 5, 15, 100.1, Failure("E", "m"), True, Retry())
    event = attempt_failed(message, 70, 100.1 + seconds)
    assert (event.now, event.ended_at, event.passed_ms) == (70, 15, passed_ms)
