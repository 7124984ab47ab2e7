"""What spans an event makes: plain data, made of the event and of the execution as its commit left it.

A span is made when it ends. All that it needs is in the row, so that it does not matter which process saw its
beginning, nor how many have died since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from stepwell.core import events
from stepwell.core.checkpoint import Checkpoint, newest_first
from stepwell.core.events import Event
from stepwell.core.names import attempt_field
from stepwell.core.records import Attempt, Fact, Failure, decode_attempt, decode_fact
from stepwell.core.redact import redact
from stepwell.core.rules.facts import step_name
from stepwell.core.status import ERROR, STEP_CANCELLED
from stepwell.core.token import idempotency_key
from stepwell.core.tracing import (
    ExecutionTrace,
    attempt_span,
    execution_span,
    moment_span,
    step_span,
)

__all__ = ["ENDS_SPANS", "Moment", "SpanData", "Value", "execution_name", "spans_of"]

Value: TypeAlias = str | int | bool
Values: TypeAlias = Mapping[str, Value]
INTERRUPTED: Final = "the process that ran it ended"
FLOW_RAISED: Final = "flow raised"
NOTHING: Final[Values] = {}


class Moment(msgspec.Struct, frozen=True):
    """Something that happened at one time within a span."""

    name: str
    at_ms: int
    attributes: Values


class SpanData(msgspec.Struct, frozen=True):
    """One span that has ended.

    Attributes:
        name: what was done, and to what: `step charge`.
        span_id: its id.
        parent: id of its parent in the same trace; 0: the execution's caller, if it has one.
        start_ms: when it began.
        end_ms: when it ended.
        attributes: all that is known of it.
        error: why it failed; None: it did not.
        moments: what happened in it.
        links: ids of spans of the same trace that it follows from.
    """

    name: str
    span_id: int
    parent: int
    start_ms: int
    end_ms: int
    attributes: Values
    error: str | None = None
    moments: tuple[Moment, ...] = ()
    links: tuple[int, ...] = ()


def spans_of(event: Event, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    """The spans that ended with an event; mostly none."""
    maker = _MAKERS.get(type(event))
    return () if maker is None else maker(event, cp, trace)


def execution_name(flow: str) -> str:
    """Name of an execution's span."""
    return f"execution {flow}"


def _completed(event: events.StepCompleted, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    fact = _fact(cp, event.path)
    if fact is None:
        return ()
    start = fact.ended_at if fact.started_at is None else fact.started_at
    body = _attempt(cp, trace, event.path, fact, event.attempt, start, fact.ended_at, "completed")
    return (body, _step(cp, trace, event.path, fact))


def _failed(event: events.AttemptFailed, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    made = _made(cp, event.path, event.attempt)
    op = cp.open.get(event.path)
    if made is None or op is None:
        return ()
    due = {"stepwell.retry.delay_ms": event.delay_ms, "stepwell.retry.due_ms": event.due_at}
    what = _Body(op.token, op.cuts)
    waits = Moment("stepwell.backoff", made.ended_at, due)
    return (_failure(cp, trace, event.path, what, made, {**due, "stepwell.retry.asked": event.asked}, (waits,)),)


def _gave_up(event: events.StepGaveUp, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    fact = _fact(cp, event.path)
    if fact is None:
        return ()
    step = _step(cp, trace, event.path, fact, event.reason, Failure(event.error_type, event.message))
    made = _made(cp, event.path, event.attempt)
    if made is None:  # it was never told how this attempt ended: the span of its interruption tells that
        return (step,)
    what = _Body(fact.token, fact.cuts)
    return (_failure(cp, trace, event.path, what, made, {"stepwell.reason": event.reason}), step)


def _interrupted(event: events.StepInterrupted, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    """The run that was cut short has told nobody of its end, so that whoever took over tells of it."""
    found = cp.open.get(event.path) or _fact(cp, event.path)
    if found is None:
        return ()
    before = _made(cp, event.path, event.attempt - 1)
    start = found.declared_at if before is None else before.due_at or before.ended_at
    at = max(event.at, start)
    more: Values = {
        "stepwell.attempt.start_estimated": True,
        "stepwell.step.set_apart": event.set_apart,
        "stepwell.interruption.cause": event.cause,
    }
    what = _Body(found.token, event.interruptions - 1)
    moments = (Moment("stepwell.interrupted", at, NOTHING),)
    return (_attempt(cp, trace, event.path, what, event.attempt, start, at, "interrupted", more, INTERRUPTED, moments),)


def _cancelled(event: events.StepCancelled, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    fact = _fact(cp, event.path)
    left = cp.error.open.get(event.path) if fact is None and cp.error is not None else None
    if left is not None:  # it was parked: its flow's code was not told, so there is no fact
        fact = Fact(0, left.token, left.declared_at, event.at, status=STEP_CANCELLED, attempt=event.attempt)
    if fact is None:
        return ()
    return (_step(cp, trace, event.path, replace(fact, attempt=event.attempt - 1), event.why),)


def _waited(event: events.WaitEnded, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    fact = _fact(cp, event.path)
    if fact is None:
        return ()
    name = f"wait {event.name}" if event.name else step_name(event.path)
    start = event.at - event.waited_ms
    attributes = {**_of_execution(cp), "stepwell.path": event.path, "stepwell.wait.outcome": event.outcome}
    span_id, parent = step_span(fact.token, trace.episode), execution_span(cp.seed, trace.episode)
    return (SpanData(name, span_id, parent, _not_before(cp, start, event.at), event.at, attributes),)


def _parked(event: events.ExecutionParked, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    at = event.at
    return (
        SpanData(
            f"parked {cp.meta.flow}",
            moment_span(cp.seed, "parked", at),
            execution_span(cp.seed, trace.episode),
            at,
            at,
            {**_of_execution(cp), "stepwell.reason": event.reason},
            redact(f"{event.reason}: {event.detail}"),
        ),
    )


def _ended(event: events.ExecutionEnded, cp: Checkpoint, trace: ExecutionTrace) -> tuple[SpanData, ...]:
    end = cp.ended_at if cp.ended_at is not None else cp.meta.created_at
    latest = cp.failures[-1] if cp.failures else None
    start = cp.meta.created_at if latest is None else latest.retried_at or latest.at
    attributes: dict[str, Value] = {**_of_execution(cp), "stepwell.execution.status": event.status}
    if event.reason:
        attributes["stepwell.reason"] = event.reason
    moments: tuple[Moment, ...] = ()
    links: tuple[int, ...] = ()
    parent = 0
    if latest is not None:
        attributes["stepwell.execution.retries"] = trace.episode
        links = (execution_span(cp.seed, trace.episode - 1),)
        parent = execution_span(cp.seed, 0)
    elif cp.started_at is not None:
        moments = (Moment("stepwell.began", cp.started_at, NOTHING),)
        attributes["stepwell.execution.queued_ms"] = max(0, cp.started_at - start)
    error = None
    if event.status == ERROR:
        attributes["error.type"] = event.error_type
        error = redact(f"{event.error_type}: {event.message}")
        if event.reason == FLOW_RAISED:  # of a step's failure its attempts tell
            moments = (*moments, _exception(end, event.error_type, event.message))
    span_id = execution_span(cp.seed, trace.episode)
    return (
        SpanData(
            execution_name(cp.meta.flow), span_id, parent, min(start, end), end, attributes, error, moments, links
        ),
    )


class _Body(msgspec.Struct):
    """What names a step's body: its token, and how often it was interrupted before."""

    token: str
    interruptions: int


def _step(
    cp: Checkpoint, trace: ExecutionTrace, path: str, fact: Fact, reason: str = "", failure: Failure | None = None
) -> SpanData:
    attributes: dict[str, Value] = {
        **_of_step(cp, path, fact.token),
        "stepwell.step.status": fact.status,
        "stepwell.step.attempts": fact.attempt,
    }
    if fact.cuts:
        attributes["stepwell.step.interruptions"] = fact.cuts
    if reason:
        attributes["stepwell.reason"] = reason
    error = None
    if failure is not None:
        attributes["error.type"] = failure.type
        error = redact(f"{failure.type}: {failure.message}")
    parent = execution_span(cp.seed, trace.episode)
    name = f"step {step_name(path)}"
    span_id, start = step_span(fact.token, trace.episode), _not_before(cp, fact.declared_at, fact.ended_at)
    return SpanData(name, span_id, parent, start, fact.ended_at, attributes, error)


def _failure(
    cp: Checkpoint,
    trace: ExecutionTrace,
    path: str,
    what: _Body,
    made: Attempt,
    more: Values,
    moments: tuple[Moment, ...] = (),
) -> SpanData:
    failure = made.error
    start = made.ended_at if made.started_at is None else made.started_at
    more = {**more, "error.type": failure.type, **({"stepwell.error.where": failure.where} if failure.where else {})}
    moments = (_exception(made.ended_at, failure.type, failure.message), *moments)
    error = redact(f"{failure.type}: {failure.message}")
    return _attempt(cp, trace, path, what, made.n, start, made.ended_at, "failed", more, error, moments)


def _attempt(
    cp: Checkpoint,
    trace: ExecutionTrace,
    path: str,
    what: _Body | Fact,
    number: int,
    start: int,
    end: int,
    outcome: str,
    more: Values = NOTHING,
    error: str | None = None,
    moments: tuple[Moment, ...] = (),
) -> SpanData:
    """One run of an attempt: linked to the attempt before, or to the run of the same attempt that was cut short."""
    token = what.token
    before = _made(cp, path, number - 1) if number > 1 else None
    links: tuple[int, ...] = () if before is None else (attempt_span(token, number - 1, before.cuts),)
    earlier = 0 if before is None or before.due_at is None else before.cuts  # (a retry by hand counts anew)
    if what.interruptions > earlier:
        links = (*links, attempt_span(token, number, what.interruptions - 1))
    attributes = {
        **_of_step(cp, path, token),
        "stepwell.attempt.number": number,
        "stepwell.attempt.outcome": outcome,
        **more,
    }
    return SpanData(
        f"attempt {step_name(path)}",
        attempt_span(token, number, what.interruptions),
        step_span(token, trace.episode),
        min(start, end),
        end,
        attributes,
        error,
        moments,
        links,
    )


def _not_before(cp: Checkpoint, start: int, end: int) -> int:
    """The start of what may be open since a retry brought it back."""
    return min(end, max(start, cp.failures[-1].retried_at or 0) if cp.failures else start)


def _of_execution(cp: Checkpoint) -> dict[str, Value]:
    return {"stepwell.execution.id": cp.execution_id, "stepwell.flow.name": cp.meta.flow}


def _of_step(cp: Checkpoint, path: str, token: str) -> dict[str, Value]:
    return {
        "stepwell.execution.id": cp.execution_id,
        "stepwell.flow.name": cp.meta.flow,
        "stepwell.step.name": step_name(path),
        "stepwell.path": path,
        "stepwell.idempotency_key": idempotency_key(cp.root, token),
    }


def _exception(at: int, kind: str, message: str) -> Moment:
    return Moment("exception", at, {"exception.type": kind, "exception.message": redact(message)})


def _fact(cp: Checkpoint, path: str) -> Fact | None:
    """The recorded outcome of a step: one of the newest facts, for it was just recorded."""
    raw = next((raw for name, raw in newest_first(cp.facts) if name == path), None)
    return None if raw is None else decode_fact(raw)


def _made(cp: Checkpoint, path: str, number: int) -> Attempt | None:
    """A failed attempt as it is kept."""
    field = attempt_field(path, number)
    raw = next((raw for name, raw in newest_first(cp.attempts) if name == field), None)
    return None if raw is None else decode_attempt(raw)


_MAKERS: Final[dict[type, Callable[..., tuple[SpanData, ...]]]] = {
    events.StepCompleted: _completed,
    events.AttemptFailed: _failed,
    events.StepGaveUp: _gave_up,
    events.StepInterrupted: _interrupted,
    events.StepCancelled: _cancelled,
    events.WaitEnded: _waited,
    events.ExecutionParked: _parked,
    events.ExecutionEnded: _ended,
}
ENDS_SPANS: Final = frozenset(_MAKERS)
"""The events with which spans end."""
