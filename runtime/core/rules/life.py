"""Rules for an execution's life: begin, what the flow's code declares, end, parking."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from stepwell.core import events
from stepwell.core.checkpoint import Checkpoint, newest_first
from stepwell.core.effects import ArmTimer, DisarmTimer, Effect, Emit, Erase, StartAttempt, Write
from stepwell.core.inputs import Begin, Declaration, FlowRaised, FlowReturned, Moved, ParkAsked
from stepwell.core.records import SIGNAL, STEP, FailedStep, LeftOpen, OpenOp, TerminalError, decode_fact, encode
from stepwell.core.rules.facts import Step, backoff_left, cancel_now, record, wind_up
from stepwell.core.status import (
    CANCELLED,
    COMPLETED,
    ERROR,
    OP_WAITING,
    PARKED,
    QUEUED,
    RUNNING,
    STEP_BACKOFF,
    STEP_COMPLETED,
    STEP_READY,
    STEP_RUNNING,
)
from stepwell.core.token import step_token


def begin(cp: Checkpoint, event: Begin) -> Step:
    """queued -> running."""
    if cp.status != QUEUED:
        return cp, []
    cp = replace(cp, status=RUNNING, started_at=event.now)
    began = events.ExecutionBegan(cp.execution_id, cp.meta.flow, max(0, event.now - cp.meta.created_at), event.now)
    return cp, [Write("started_at", str(event.now).encode()), Emit(began)]


def moved(cp: Checkpoint, event: Moved) -> Step:
    """The flow's code went on: declare what it waits for, wind up what a failing gather leaves, or end."""
    effects: list[Effect] = []
    if (cp.failed_path or cp.left) and any(d.after_failure for d in event.declared):
        cp = replace(cp, failed_path="", left={})
        effects += [Erase("failed"), Erase("left")]
    for declaration in event.declared:
        cp, more = _declare(cp, declaration, event.now)
        effects += more
    if event.wind_up:
        cp, more = wind_up(cp, event.wind_up, "gather", event.now)
        effects += more
    if event.end is not None:
        cp, more = _end(cp, event.end, event.now)
        effects += more
    return cp, effects


def _declare(cp: Checkpoint, declared: Declaration, now: int) -> Step:
    token = step_token(cp.seed, declared.path)
    if cp.cancelling and not declared.cleanup:
        # The cancel came while a failing gather wound up, so nothing was there to be cancelled: now there is.
        op = OpenOp(declared.kind, STEP_READY, token, now, declared.name, winding="cancel")
        return cancel_now(replace(cp, open={**cp.open, declared.path: op}), declared.path, op, now)
    if declared.kind == STEP:
        op = OpenOp(STEP, STEP_RUNNING, token, now, declared.name, attempt=1)
        start: Effect = StartAttempt(declared.path, 1)
        return _open(cp, declared.path, op, start)
    delay_ms = None if declared.seconds is None else math.ceil(max(0.0, declared.seconds) * 1000)
    due_at = None if delay_ms is None else now + delay_ms
    op = OpenOp(declared.kind, OP_WAITING, token, now, declared.name, due_at=due_at, delay_ms=delay_ms)
    if declared.kind == SIGNAL:
        for seq, signal in cp.signals.items():
            if signal.name == declared.name:
                remaining = {k: v for k, v in cp.signals.items() if k != seq}
                cp = replace(cp, signals=remaining, open={**cp.open, declared.path: op})
                cp, effects = record(cp, declared.path, op, STEP_COMPLETED, now, value=signal.payload)
                return cp, [Erase(f"s:{seq}"), *effects]
    arm = None if delay_ms is None else ArmTimer(declared.path, delay_ms)
    cp, effects = _open(cp, declared.path, op, arm)
    return cp, [*effects, wait_began(cp, declared.path, op, now)]


def wait_began(cp: Checkpoint, path: str, op: OpenOp, now: int) -> Effect:
    """Tell that the flow waits for a timer or a signal."""
    return Emit(events.WaitBegan(cp.execution_id, cp.meta.flow, path, op.kind, now, op.name, op.due_at))


def _open(cp: Checkpoint, path: str, op: OpenOp, follow: Effect | None) -> Step:
    opened = dict(cp.open)
    opened[path] = op
    effects: list[Effect] = [Write("p:" + path, encode(op))]
    if follow is not None:
        effects.append(follow)
    return replace(cp, open=opened), effects


def _end(cp: Checkpoint, end: FlowReturned | FlowRaised, now: int) -> Step:
    assert not cp.open, f"{cp.execution_id} ended while {sorted(cp.open)} are open"
    duration = max(0, now - (cp.started_at if cp.started_at is not None else now))
    cp = replace(cp, ended_at=now)
    effects: list[Effect] = [Write("ended_at", str(now).encode())]
    if isinstance(end, FlowReturned):
        cp = replace(cp, status=COMPLETED, result=end.value)
        reason = ""
        effects.append(Write("result", end.value))
    elif end.cancelled:
        cp = replace(cp, status=CANCELLED)
        reason = "cancel"
    else:
        error = _terminal_error(cp, end, now)
        cp = replace(cp, status=ERROR, error=error)
        reason = "step failed" if error.failed_step is not None else "flow raised"
        effects.append(Write("error", encode(error)))
    if cp.left or cp.failed_path:
        cp = replace(cp, left={}, failed_path="")
        effects += [Erase("left"), Erase("failed")]
    if cp.signals and cp.status != ERROR:  # a retry may come to the waits they are for
        effects += [Erase(f"s:{seq}") for seq in cp.signals]
        cp = replace(cp, signals={})
    told = events.ExecutionEnded(cp.execution_id, cp.meta.flow, cp.status, reason, duration, now)
    if cp.error is not None:
        told = replace(told, error_type=cp.error.type, message=cp.error.message, detail=cp.error.detail)
    return cp, [*effects, Emit(told)]


def _terminal_error(cp: Checkpoint, end: FlowRaised, now: int) -> TerminalError:
    compensated = bool(end.path) and end.path not in cp.left
    path = end.path or cp.failed_path
    failed_step = None
    attempts = end.attempts
    if path:
        left = cp.left.get(path)
        attempts = left.attempts if left is not None else end.attempts
        failed_step = FailedStep(path, step_token(cp.seed, path), attempts)
    left_behind: Mapping[str, LeftOpen] = {} if compensated else cp.left
    return TerminalError(
        type=end.error.type,
        message=end.error.message,
        at=now,
        attempts=attempts,
        failed_step=failed_step,
        open={p: op for p, op in left_behind.items() if op.status != STEP_COMPLETED},
        wound=tuple(p for p, op in left_behind.items() if op.status == STEP_COMPLETED),
        compensated=compensated,
        detail=end.detail or _place_of(cp, path),
    )


def _place_of(cp: Checkpoint, path: str) -> str:
    """Where the step at `path` failed, as its fact has it."""
    for name, raw in newest_first(cp.facts):
        if name == path:
            failure = decode_fact(raw).error
            return "" if failure is None else failure.where
    return ""


def park(cp: Checkpoint, event: ParkAsked) -> Step:
    """Stop here and say why; open steps keep their tokens and attempts."""
    if cp.terminal:
        return cp, []
    error = TerminalError(event.reason, event.detail, event.now)
    effects: list[Effect] = [Write("error", encode(error))]
    opened = dict(cp.open)
    for path, op in cp.open.items():
        if op.due_at is not None:
            effects.append(DisarmTimer(path))
        if op.status == STEP_BACKOFF:
            effects.append(backoff_left(cp, path, op, "parked", event.now))
        if op.status == STEP_RUNNING:
            opened[path] = replace(op, status=STEP_READY)
            effects.append(Write("p:" + path, encode(opened[path])))
    cp = replace(cp, status=PARKED, error=error, open=opened)
    told = events.ExecutionParked(cp.execution_id, cp.meta.flow, event.reason, event.detail, event.now, event.path)
    effects.append(Emit(told))
    return cp, effects
