"""Rules for attempts and timers: results, failures, backoff, interruptions."""

from __future__ import annotations

import math

from msgspec import Raw
from msgspec.structs import replace

from stepwell.core import events
from stepwell.core.checkpoint import Chain, Checkpoint
from stepwell.core.effects import ArmTimer, Effect, Emit, Erase, StartAttempt, Write
from stepwell.core.inputs import AttemptFailed, AttemptSucceeded, CutOff, GraceOver, NotStarted, Resumed, TimerFired
from stepwell.core.names import attempt_field
from stepwell.core.records import STEP, TIMER, Attempt, Failure, OpenOp, encode_kept
from stepwell.core.rules.facts import NULL, Step, backoff_left, cancel_now, fail, leave, record, reopen
from stepwell.core.status import (
    OP_TIMED_OUT,
    PARKED,
    STEP_BACKOFF,
    STEP_COMPLETED,
    STEP_READY,
    STEP_RUNNING,
)
from stepwell.core.token import idempotency_key

INTERRUPTIONS_MAX = 10
LANE_INTERRUPTIONS = 2  # from then on a step runs in a process of its own, even if no box names it
ATTEMPTS_KEPT = 20  # of the first and of the last attempts of a step
TRIM_EVERY = 64  # attempts of a step, so that a failure costs the same however many there were


def succeeded(cp: Checkpoint, event: AttemptSucceeded) -> Step:
    """A result is recorded even when the step is being wound up: then it is delivered as `Cancelled`."""
    op = _running(cp, event.path, event.attempt)
    if op is None:
        return _dropped(cp, event)
    ended = min(event.ended_at, event.now)
    duration = max(0, ended - event.started_at)
    done = events.StepCompleted(
        cp.execution_id, cp.meta.flow, op.name, event.path, op.attempt, duration, event.started_at, event.queued_ms
    )
    effects: list[Effect] = []
    if op.winding == "gather":
        cp, effects = leave(cp, event.path, op, STEP_COMPLETED, op.attempt, 0)
    cp, more = record(
        cp,
        event.path,
        op,
        STEP_COMPLETED,
        ended,
        value=Raw(event.value),
        started_at=event.started_at,
        cancel=bool(op.winding),
    )
    return cp, [*effects, *more, Emit(done)]


def failed(cp: Checkpoint, event: AttemptFailed) -> Step:
    """One commit: the attempt, its error and when the next one is due; or the step's end."""
    op = _running(cp, event.path, event.attempt)
    if op is None:
        return _dropped(cp, event)
    exhausted = op.failures + 1 >= event.policy.max_attempts
    if event.retryable and not exhausted and not op.winding:
        return _back_off(cp, event, op)
    reason = "" if event.retryable else event.error.reason
    error = replace(event.error, reason=reason)
    ended = min(event.ended_at, event.now)
    cp, effects = _log_attempt(
        cp, event.path, Attempt(op.attempt, ended, error, event.started_at, None, 0, op.interruptions, op.drains)
    )
    if event.retryable and not exhausted:
        cp, more = cancel_now(cp, event.path, op, ended, made=op.attempt)
        return cp, [*effects, *more, _gave_up(cp, event.path, op, error, op.winding, ended, event)]
    cp, more = fail(cp, event.path, op, error, ended, event.started_at)
    return cp, [*effects, *more, _gave_up(cp, event.path, op, error, reason or "exhausted", ended, event)]


def not_started(cp: Checkpoint, event: NotStarted) -> Step:
    """The attempt keeps its number for a later retry; the step ends as cancelled."""
    op = _running(cp, event.path, event.attempt)
    if op is None or not op.winding:
        return cp, []
    return cancel_now(cp, event.path, op, event.now)


def grace_over(cp: Checkpoint, event: GraceOver) -> Step:
    """What comes of the body will not be known. The attempt runs again with its number: nobody is billed or blamed."""
    op = _running(cp, event.path, event.attempt)
    if op is None:
        return cp, []
    op = replace(op, drains=op.drains + 1, let_go=True, late_from=None)
    cp, effects = reopen(cp, event.path, op)
    return cp, [*effects, _told(cp, event.path, op, "drain", event.now)]


def fired(cp: Checkpoint, event: TimerFired) -> Step:
    """A backoff ended, a sleep is over, or a wait timed out. A timer without its operation does nothing, nor does
    one that was on its way when the execution was parked: it is armed again later."""
    op = cp.open.get(event.path)
    if op is None or op.winding or cp.status == PARKED:
        return cp, []
    if op.kind == STEP:
        if op.status != STEP_BACKOFF:
            return cp, []
        return start_retry(cp, event.path, op, event.woken_by, event.now)
    if op.kind == TIMER:
        return record(cp, event.path, op, STEP_COMPLETED, event.now, value=NULL)
    return record(cp, event.path, op, OP_TIMED_OUT, event.now)


def start_retry(cp: Checkpoint, path: str, op: OpenOp, woken_by: events.WokenBy, now: int) -> Step:
    """End a backoff: the start of the next attempt is mirrored before its body runs."""
    late_from = now if woken_by == "manual" else op.due_at
    cp, effects = reopen(cp, path, replace(op, status=STEP_RUNNING, due_at=None, delay_ms=None, late_from=late_from))
    effects.append(backoff_left(cp, path, op, woken_by, now))
    effects.append(StartAttempt(path, op.attempt))
    return cp, effects


def resumed(cp: Checkpoint, event: Resumed) -> Step:
    """Back in memory: timers are armed with what remains, running steps run again with their numbers."""
    effects: list[Effect] = []
    for path, op in list(cp.open.items()):
        if op.kind == STEP and op.status in (STEP_RUNNING, STEP_READY):
            cp, more = _rerun(cp, path, op, event)
        else:
            cp, more = _rearm(cp, path, op, event)
        effects += more
    return cp, effects


def cut_off(cp: Checkpoint, event: CutOff) -> Step:
    """Nothing runs again for now."""
    effects: list[Effect] = []
    for path, op in list(cp.open.items()):
        cut = _cut_short(op, event) if op.kind == STEP and op.status == STEP_RUNNING else ""
        if cut:
            op, told = _interrupted(cp, path, op, cut, event.now)
            cp, more = reopen(cp, path, op)
            effects += [*more, told]
    return cp, effects


def remaining_ms(op: OpenOp, now: int) -> int:
    """Milliseconds until the operation is due: never longer than the delay that was recorded."""
    due = op.due_at if op.due_at is not None else now
    left = max(0, due - now)
    return left if op.delay_ms is None else min(left, op.delay_ms)


def _rearm(cp: Checkpoint, path: str, op: OpenOp, event: Resumed) -> Step:
    if op.due_at is None:
        return cp, []
    now, moved = event.now, event.moved.get(path, 0)
    remaining = remaining_ms(op, now - moved)
    effects: list[Effect] = []
    if moved:
        # What has really passed is known here: from now on the row tells what is left, by the clock as it is.
        cp, effects = reopen(cp, path, replace(op, due_at=now + remaining, delay_ms=remaining))
    elif op.due_at - now > remaining:
        # The server's clock was set back: from now on the row tells the due time by the clock as it is.
        cp, effects = reopen(cp, path, replace(op, due_at=now + remaining))
    effects.append(ArmTimer(path, remaining, "timer" if remaining else event.woken_by))
    if op.kind == STEP:
        told = events.BackoffResumed(cp.execution_id, cp.meta.flow, op.name, path, remaining, op.attempt, now)
        effects.append(Emit(told))
    return cp, effects


def _rerun(cp: Checkpoint, path: str, op: OpenOp, event: Resumed) -> Step:
    """Also one that is being wound up is asked for: whoever runs bodies knows whether it still runs (then its outcome
    is waited for) or never begins (`NotStarted`)."""
    if op.status == STEP_READY:
        cp, effects = reopen(cp, path, replace(op, status=STEP_RUNNING, late_from=None, let_go=False))
        return cp, [*effects, StartAttempt(path, op.attempt)]
    cut = _cut_short(op, event)
    if not cut:
        start = StartAttempt(path, op.attempt)
        may_have_begun = op.let_go or (op.late_from is not None and not event.clean)
        if not may_have_begun:
            return cp, [start]
        # It is late from now on.
        cp, effects = reopen(cp, path, replace(op, late_from=None, let_go=False))
        return cp, [*effects, start]
    op, told = _interrupted(cp, path, op, cut, event.now)
    if op.interruptions > INTERRUPTIONS_MAX:
        error = Failure(
            "Interrupted", f"cut short {op.interruptions} times: does this step kill its process?", "interrupted"
        )
        cp, effects = fail(cp, path, op, error, event.now, None)
        return cp, [*effects, told, _gave_up(cp, path, op, error, "interrupted", event.now, None)]
    cp, effects = reopen(cp, path, op)
    return cp, [*effects, told, StartAttempt(path, op.attempt)]


def _interrupted(cp: Checkpoint, path: str, op: OpenOp, cut: str, now: int) -> tuple[OpenOp, Effect]:
    """One interruption more, and what is told of it. That it was due once does not make it late when it runs again."""
    interruptions = op.interruptions + 1
    lane = op.lane or cut == "named" or interruptions >= LANE_INTERRUPTIONS
    op = replace(op, interruptions=interruptions, lane=lane, late_from=None)
    return op, _told(cp, path, op, "crash", now)


def _told(cp: Checkpoint, path: str, op: OpenOp, cause: events.Cause, now: int) -> Effect:
    apart = op.lane and cause == "crash"
    return Emit(
        events.StepInterrupted(cp.execution_id, cp.meta.flow, op.name, path, op.attempt, op.cuts, now, apart, cause)
    )


def _cut_short(op: OpenOp, event: Resumed | CutOff) -> str:
    """Whether a crash interrupted its attempt: empty, `running`, or `named` where its own code was at work."""
    if event.clean or op.let_go:
        return ""
    if event.cut is None:
        return "running"
    for cut in event.cut:
        if cut.token == op.token and cut.attempt == op.attempt:
            return "named" if cut.named else "running"
    return ""


def _back_off(cp: Checkpoint, event: AttemptFailed, op: OpenOp) -> Step:
    failure = op.failures + 1
    delay = event.policy.delay(op.token, op.attempt, failure, event.retry_after)
    delay_ms = math.ceil(delay * 1000)
    ended = min(event.ended_at, event.now)
    due_at = ended + delay_ms
    last = op.budget_from + event.policy.max_attempts
    attempt = Attempt(op.attempt, ended, event.error, event.started_at, due_at, last, op.interruptions, op.drains)
    cp, effects = _log_attempt(cp, event.path, attempt)
    waiting = replace(
        op, status=STEP_BACKOFF, attempt=op.attempt + 1, due_at=due_at, delay_ms=delay_ms, late_from=None, let_go=False
    )
    cp, more = reopen(cp, event.path, waiting)
    told = events.AttemptFailed(
        cp.execution_id,
        cp.meta.flow,
        op.name,
        event.path,
        op.attempt,
        last,
        event.kind,
        event.error.type,
        event.error.message,
        delay_ms,
        due_at,
        op.token,
        idempotency_key(cp.root, op.token),
        event.retry_after is not None,
        event.started_at,
        _duration(event, ended),
        event.queued_ms,
    )
    effects += [*more, Emit(told)]
    if cp.status == PARKED:
        effects.append(backoff_left(cp, event.path, waiting, "parked", event.now))
    else:
        # What Redis, or anything else, has kept this from being decided on is part of the delay.
        effects.append(ArmTimer(event.path, max(0, delay_ms - event.passed_ms)))
    return cp, effects


def _log_attempt(cp: Checkpoint, path: str, attempt: Attempt) -> Step:
    field, raw = attempt_field(path, attempt.n), encode_kept(attempt)
    effects: list[Effect] = [Write(field, raw)]
    outdated = attempt.n - ATTEMPTS_KEPT
    if outdated > ATTEMPTS_KEPT:
        effects.append(Erase(attempt_field(path, outdated)))
    chain: Chain = (field, raw, cp.attempts)
    if attempt.n % TRIM_EVERY == 0:
        chain = _trimmed(chain, path, attempt.n)
    return replace(cp, attempts=chain), effects


def _trimmed(chain: Chain, path: str, last: int) -> Chain:
    """Without those attempts of one step that its row does not keep either; what is older than they is shared."""
    prefix = f"a:{path}:"
    newer: list[tuple[str, bytes]] = []
    while chain is not None:
        field, raw, earlier = chain
        n = int(field[len(prefix) :]) if field.startswith(prefix) else 0
        if 0 < n <= ATTEMPTS_KEPT:
            break
        if n == 0 or n > last - ATTEMPTS_KEPT:
            newer.append((field, raw))
        chain = earlier
    for field, raw in reversed(newer):
        chain = (field, raw, chain)
    return chain


def _running(cp: Checkpoint, path: str, attempt: int) -> OpenOp | None:
    """The step whose attempt this is. A parked one is `ready`, and its body may still have been running."""
    op = cp.open.get(path)
    if op is not None and op.status in (STEP_RUNNING, STEP_READY) and op.attempt == attempt and op.kind == STEP:
        return op
    return None


def _dropped(cp: Checkpoint, event: AttemptSucceeded | AttemptFailed) -> Step:
    return cp, [Emit(events.ResultDropped(cp.execution_id, cp.meta.flow, event.path, event.attempt, event.now))]


def _duration(event: AttemptFailed, ended: int) -> int:
    return 0 if event.started_at is None else max(0, ended - event.started_at)


def _gave_up(
    cp: Checkpoint, path: str, op: OpenOp, error: Failure, reason: str, at: int, last: AttemptFailed | None
) -> Effect:
    return Emit(
        events.StepGaveUp(
            cp.execution_id,
            cp.meta.flow,
            op.name,
            path,
            op.attempt,
            reason,
            "interrupted" if last is None else last.kind,
            error.type,
            error.message,
            op.token,
            idempotency_key(cp.root, op.token),
            at,
            None if last is None else last.started_at,
            0 if last is None else _duration(last, at),
            0 if last is None else last.queued_ms,
        )
    )
