"""Rules for commands. Each is applied or refused with a reason, whatever the status; a repeat changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stepwell.core import events
from stepwell.core.checkpoint import APPLIED_LIMIT, Chain, Checkpoint, oldest_first, retries_of
from stepwell.core.codec import UNREADABLE
from stepwell.core.effects import Answer, DisarmTimer, Effect, Emit, Erase, Redrive, Write
from stepwell.core.inputs import CancelAsked, Command, Resumed, RetryAsked, SignalSent
from stepwell.core.records import (
    SIGNAL,
    STEP,
    LeftOpen,
    OpenOp,
    Outcome,
    Signal,
    TerminalError,
    decode_fact,
    encode,
)
from stepwell.core.rules.facts import Step, backoff_left, left_open, record, step_cancelled, wait_ended, wind_up
from stepwell.core.rules.life import wait_began
from stepwell.core.rules.steps import resumed, start_retry
from stepwell.core.status import (
    CANCELLED,
    COMPLETED,
    ERROR,
    OP_WAITING,
    PARKED,
    QUEUED,
    RUNNING,
    STEP_BACKOFF,
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_FAILED,
    STEP_RUNNING,
    TERMINAL,
)

SIGNALS_BUFFERED_MAX = 1000
FAILURES_KEPT = 10


def signal(cp: Checkpoint, event: SignalSent) -> Step:
    """Give the signal to the oldest wait for its name, or keep it until there is one."""
    if cp.status in TERMINAL:
        return _refuse(cp, event, "signal", f"it has ended ({cp.status}); a signal can't reach it any more")
    if not _is_json(event.payload):
        return _refuse(cp, event, "signal", "its payload is not JSON")
    payload = Raw(event.payload)
    waits = [(op.declared_at, p) for p, op in cp.open.items() if op.kind == SIGNAL and op.name == event.name]
    if waits and cp.status != PARKED:
        path = min(waits)[1]
        op = cp.open[path]
        effects: list[Effect] = [] if op.due_at is None else [DisarmTimer(path)]
        cp, more = record(cp, path, op, STEP_COMPLETED, event.now, value=payload)
        return _apply(cp, event, "signal", [*effects, *more])
    if len(cp.signals) >= SIGNALS_BUFFERED_MAX:
        return _refuse(cp, event, "signal", f"{SIGNALS_BUFFERED_MAX} signals are waiting to be read already")
    seq = cp.signal_seq + 1
    kept = Signal(event.name, payload, event.now)
    cp = replace(cp, signal_seq=seq, signals={**cp.signals, seq: kept})
    return _apply(cp, event, "signal", [Write(f"s:{seq}", encode(kept))], _why_kept(cp, event.name))


def _why_kept(cp: Checkpoint, name: str) -> str:
    """Tells a sender who mistyped the name what is waited for instead."""
    waits = {op.name for op in cp.open.values() if op.kind == SIGNAL}
    if name in waits:
        return f"it is {cp.status}, so the signal is kept until it goes on"
    others = sorted(waits)
    now = f" (it waits for {', '.join(map(repr, others))})" if others else ""
    return f"nothing waits for {name!r} now{now}, so it is kept until something does"


def cancel(cp: Checkpoint, event: CancelAsked) -> Step:
    """Raise `Cancelled` at the current awaits once what runs there has ended; during a backoff at once."""
    if cp.status == CANCELLED or (cp.cancelling and cp.status != PARKED):
        return _apply(cp, event, "cancel", [], "it was cancelled before")
    if cp.status in TERMINAL:
        return _refuse(cp, event, "cancel", f"it has ended ({cp.status})")
    cp = replace(cp, cancelling=True)
    effects: list[Effect] = [Write("cancelling", str(event.now).encode())]
    if cp.status in (QUEUED, PARKED):
        cp, more = _cancel_undriven(cp, event.now)
    else:
        cp, more = wind_up(cp, tuple(cp.open), "cancel", event.now)
    return _apply(cp, event, "cancel", effects + more)


def retry(cp: Checkpoint, event: RetryAsked) -> Step:
    """Reopen what failed (same tokens, fresh budget), un-park, or end the current backoffs now."""
    act = _RETRY[cp.status]
    if event.obstacle and act is not _retry_refused:
        return _refuse(cp, event, "retry", event.obstacle)
    return act(cp, event)


def _retry_refused(cp: Checkpoint, event: RetryAsked) -> Step:
    reasons = {
        QUEUED: "it has not begun yet and starts by itself",
        COMPLETED: "it completed; start a new execution to run it again",
        CANCELLED: "it was cancelled; start a new execution to run it again",
    }
    return _refuse(cp, event, "retry", reasons[cp.status])


def _retry_now(cp: Checkpoint, event: RetryAsked) -> Step:
    backing_off = [(path, op) for path, op in cp.open.items() if op.status == STEP_BACKOFF]
    if not backing_off:
        waits = ", ".join(f"{path} ({op.status})" for path, op in sorted(cp.open.items()))
        return _refuse(cp, event, "retry", f"nothing is backing off; it is at {waits}")
    effects: list[Effect] = []
    for path, op in backing_off:
        cp, more = start_retry(cp, path, op, "manual", event.now)
        effects += [DisarmTimer(path), *more]
    return _apply(cp, event, "retry", effects)


def _unpark(cp: Checkpoint, event: RetryAsked) -> Step:
    status = RUNNING if cp.started_at is not None else QUEUED
    cp = replace(cp, status=status, error=None)
    cp, more = resumed(cp, Resumed(event.now, clean=True, woken_by="manual"))
    cp, read = _read_signals(cp, event.now)
    return _apply(cp, event, "retry", [Erase("error"), Redrive(), _goes_on(cp, event, PARKED), *more, *read])


def _goes_on(cp: Checkpoint, event: RetryAsked, was: str) -> Effect:
    why = "retry" if event.command_id else "deployed"
    return Emit(events.ExecutionResumed(cp.execution_id, cp.meta.flow, was, why, event.now))


def _retry_error(cp: Checkpoint, event: RetryAsked) -> Step:
    error = cp.error
    assert error is not None, f"{cp.execution_id} is in error without an error"
    if error.compensated:
        return _refuse(
            cp,
            event,
            "retry",
            "the flow went on after that failure (compensated): a retry would undo what it did since;"
            " start a new execution",
        )
    superseded = replace(error, retried_at=event.now, retry=retries_of(cp) + 1)
    failures = (*cp.failures, superseded)[-FAILURES_KEPT:]
    effects: list[Effect] = [Erase("error"), Erase("ended_at"), Write("failures", encode(failures))]
    if cp.cancelling:
        effects.append(Erase("cancelling"))
    cp = replace(cp, status=RUNNING, error=None, failures=failures, ended_at=None, result=None, cancelling=False)
    cp, more = _supersede(cp, error)
    effects += more
    for path, left in error.open.items():
        op = _brought_back(left, event.now)
        cp = replace(cp, open={**cp.open, path: op})
        effects.append(Write("p:" + path, encode(op)))
        if op.kind != STEP:
            effects.append(wait_began(cp, path, op, event.now))
    effects += [Redrive(), _goes_on(cp, event, ERROR)]
    cp, more = resumed(cp, Resumed(event.now, clean=True))
    cp, read = _read_signals(cp, event.now)
    return _apply(cp, event, "retry", [*effects, *more, *read])


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload)
    except UNREADABLE:
        return False
    return True


def _read_signals(cp: Checkpoint, now: int) -> Step:
    """Give buffered signals to the open waits: they came while no flow code was there to take them."""
    effects: list[Effect] = []
    waits = sorted((op.declared_at, path) for path, op in cp.open.items() if op.kind == SIGNAL)
    for _, path in waits:
        op = cp.open[path]
        seq = next((seq for seq, kept in cp.signals.items() if kept.name == op.name), None)
        if seq is None:
            continue
        payload = cp.signals[seq].payload
        cp = replace(cp, signals={k: v for k, v in cp.signals.items() if k != seq})
        if op.due_at is not None:
            effects.append(DisarmTimer(path))
        cp, more = record(cp, path, op, STEP_COMPLETED, now, value=payload)
        effects += [Erase(f"s:{seq}"), *more]
    return cp, effects


def _brought_back(left: LeftOpen, now: int) -> OpenOp:
    """The open operation again: same token; a failed step goes on with a fresh budget and the next number."""
    if left.kind != STEP:
        return OpenOp(
            kind=left.kind,
            status=OP_WAITING,
            token=left.token,
            declared_at=left.declared_at,
            name=left.name,
            due_at=left.due_at,
            delay_ms=None if left.due_at is None else max(0, left.due_at - now),
            generation=left.generation,
        )
    fresh = left.status == STEP_FAILED
    return OpenOp(
        kind=STEP,
        status=STEP_RUNNING,
        token=left.token,
        declared_at=left.declared_at,
        name=left.name,
        attempt=left.next_attempt,
        budget_from=left.attempts if fresh else left.budget_from,
        interruptions=0 if fresh else left.interruptions,
        drains=0 if fresh else left.drains,
        generation=left.generation,
        late_from=now if left.next_attempt > 1 else None,
    )


def _supersede(cp: Checkpoint, error: TerminalError) -> Step:
    """Mark the facts that the failure made, so that replay comes to the same point with them undone."""
    facts: Chain = None
    kept = 0
    effects: list[Effect] = []
    for path, raw in oldest_first(cp.facts):
        if path in error.open:
            raw = encode(replace(decode_fact(raw), superseded=True))
            effects.append(Write("r:" + path, raw))
            continue
        if path in error.wound:
            raw = encode(replace(decode_fact(raw), cancel=False))
            effects.append(Write("r:" + path, raw))
        facts = (path, raw, facts)
        kept += 1
    return replace(cp, facts=facts, fact_count=kept), effects


def _cancel_undriven(cp: Checkpoint, now: int) -> Step:
    """Cancel where no flow code is in memory to be told: its cleanup does not run, and the row says so."""
    effects: list[Effect] = [Write("ended_at", str(now).encode())]
    effects += [Erase("p:" + path) for path in cp.open]
    for path, op in cp.open.items():
        effects += _waits_no_more(cp, path, op, now)
    effects += [Erase(f"s:{seq}") for seq in cp.signals]
    if cp.left or cp.failed_path:
        effects += [Erase("left"), Erase("failed")]
    if cp.status == PARKED:
        left = {path: left_open(op, op.status, max(op.attempt - 1, 0), op.attempt) for path, op in cp.open.items()}
        error = TerminalError("Cancelled", "cancelled while parked: its cleanup code did not run", now, open=left)
        cp = replace(cp, error=error)
        effects.append(Write("error", encode(error)))
    cp = replace(cp, status=CANCELLED, open={}, signals={}, left={}, failed_path="", ended_at=now)
    began = cp.started_at if cp.started_at is not None else now
    ended = events.ExecutionEnded(cp.execution_id, cp.meta.flow, CANCELLED, "cancel", max(0, now - began), now)
    return cp, [*effects, Emit(ended)]


def _waits_no_more(cp: Checkpoint, path: str, op: OpenOp, now: int) -> list[Effect]:
    if op.kind != STEP:
        return [wait_ended(cp, path, op, STEP_CANCELLED, now)]
    ended = step_cancelled(cp, path, op, now)
    return [backoff_left(cp, path, op, "cancel", now), ended] if op.status == STEP_BACKOFF else [ended]


def _apply(cp: Checkpoint, event: Command, name: str, effects: list[Effect], reason: str = "") -> Step:
    return _answer(cp, event, name, True, reason, effects)


def _refuse(cp: Checkpoint, event: Command, name: str, why: str) -> Step:
    return _answer(cp, event, name, False, f"{name} of {cp.execution_id} refused: {why}", [])


def _answer(cp: Checkpoint, event: Command, name: str, applied: bool, reason: str, effects: list[Effect]) -> Step:
    if not event.command_id:
        return cp, effects
    known = (*cp.applied, event.command_id)[-APPLIED_LIMIT:]
    cp = replace(cp, applied=known)
    told = events.CommandDone(cp.execution_id, cp.meta.flow, name, applied, reason, event.now, event.command_id)
    answer = Answer(event.command_id, Outcome(applied, cp.status, reason))
    return cp, [*effects, Write("applied", encode(known)), answer, Emit(told)]


_RETRY: dict[str, Callable[[Checkpoint, RetryAsked], Step]] = {
    QUEUED: _retry_refused,
    RUNNING: _retry_now,
    "waiting": _retry_now,
    PARKED: _unpark,
    COMPLETED: _retry_refused,
    ERROR: _retry_error,
    CANCELLED: _retry_refused,
}
