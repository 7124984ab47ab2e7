"""Recording outcomes: the only place where facts are made and operations are opened or closed."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw
from msgspec.structs import replace

from stepwell.core import events
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.effects import Deliver, DisarmTimer, Effect, Emit, Erase, Withdraw, Write
from stepwell.core.records import (
    NO_VALUE,
    STEP,
    Fact,
    FactStatus,
    Failure,
    LeftOpen,
    OpenOp,
    OpStatus,
    encode,
    encode_kept,
)
from stepwell.core.status import OP_WAITING, STEP_BACKOFF, STEP_CANCELLED, STEP_FAILED, STEP_RUNNING

Step = tuple[Checkpoint, list[Effect]]
NULL = Raw(b"null")


def step_name(path: str) -> str:
    """The step's own name at the end of a path: `gather#2.0/ship#3` -> `ship`."""
    return path.rpartition("/")[2].partition("#")[0]


def record(
    cp: Checkpoint,
    path: str,
    op: OpenOp,
    status: FactStatus,
    now: int,
    value: Raw = NO_VALUE,
    error: Failure | None = None,
    started_at: int | None = None,
    cancel: bool = False,
) -> Step:
    """Close the open operation with an outcome, and hand the fact to the flow's code."""
    seq = cp.seq + 1
    fact = Fact(
        seq=seq,
        kind=op.kind,
        status=status,
        token=op.token,
        declared_at=op.declared_at,
        ended_at=now,
        value=value,
        error=error,
        attempt=op.attempt,
        started_at=started_at,
        interruptions=op.interruptions,
        drains=op.drains,
        generation=op.generation,
        cancel=cancel,
        name=op.name if op.kind != STEP else "",
    )
    raw = encode_kept(fact)
    opened = dict(cp.open)
    del opened[path]
    cp = replace(cp, seq=seq, open=opened, facts=(path, raw, cp.facts), fact_count=cp.fact_count + 1)
    effects: list[Effect] = [Write("r:" + path, raw), Erase("p:" + path), Deliver(path, fact)]
    if op.kind != STEP:
        effects.append(wait_ended(cp, path, op, status, now))
    return cp, effects


def wait_ended(cp: Checkpoint, path: str, op: OpenOp, status: FactStatus, now: int) -> Effect:
    """Tell that a timer or a wait is over."""
    waited = max(0, now - op.declared_at)
    return Emit(events.WaitEnded(cp.execution_id, cp.meta.flow, path, op.kind, status, waited, now, op.name))


def backoff_left(cp: Checkpoint, path: str, op: OpenOp, why: events.BackoffEnd, now: int) -> Effect:
    """Tell that a step backs off no longer."""
    return Emit(events.BackoffLeft(cp.execution_id, cp.meta.flow, op.name, path, why, op.attempt, now))


def reopen(cp: Checkpoint, path: str, op: OpenOp) -> Step:
    """Put a new state of an open operation into the checkpoint and the row."""
    opened = dict(cp.open)
    opened[path] = op
    return replace(cp, open=opened), [Write("p:" + path, encode(op))]


def leave(cp: Checkpoint, path: str, op: OpenOp, status: OpStatus | FactStatus, made: int, next_attempt: int) -> Step:
    """Remember an operation that a failure leaves behind, so that a manual retry can bring it back."""
    all_left = {**cp.left, path: left_open(op, status, made, next_attempt)}
    return replace(cp, left=all_left), [Write("left", encode(all_left))]


def left_open(op: OpenOp, status: OpStatus | FactStatus, made: int, next_attempt: int) -> LeftOpen:
    """An open operation as an ended execution remembers it."""
    return LeftOpen(
        kind=op.kind,
        token=op.token,
        attempts=made,
        status=status,
        declared_at=op.declared_at,
        next_attempt=next_attempt,
        budget_from=op.budget_from,
        interruptions=op.interruptions,
        drains=op.drains,
        due_at=op.due_at,
        name=op.name,
        generation=op.generation,
    )


def wind_up(cp: Checkpoint, paths: tuple[str, ...], why: str, now: int) -> Step:
    """Let nothing new start at these paths: what runs may end, anything else is cancelled at once."""
    effects: list[Effect] = []
    for path in paths:
        op = cp.open.get(path)
        if op is None or op.winding:
            continue
        if op.kind == STEP and op.status == STEP_RUNNING:
            cp, more = reopen(cp, path, replace(op, winding=why))
            effects.append(Withdraw(path, op.attempt))
        else:
            cp, more = cancel_now(cp, path, replace(op, winding=why), now)
        effects += more
    return cp, effects


def cancel_now(cp: Checkpoint, path: str, op: OpenOp, now: int, made: int | None = None) -> Step:
    """End an operation that is not running with `Cancelled`. `made`: attempts made, if the current one was."""
    effects: list[Effect] = []
    if op.status in (STEP_BACKOFF, OP_WAITING):
        effects.append(DisarmTimer(path))
    if op.status == STEP_BACKOFF:
        effects.append(backoff_left(cp, path, op, "gather" if op.winding == "gather" else "cancel", now))
    if op.winding == "gather":
        done = max(op.attempt - 1, 0) if made is None else made
        following = done + 1 if op.kind == STEP else 0
        cp, more = leave(cp, path, op, op.status, done, following)
        effects += more
    if op.kind == STEP and made is None:
        effects.append(step_cancelled(cp, path, op, now))
    cp, more = record(cp, path, op, STEP_CANCELLED, now, cancel=True)
    return cp, effects + more


def step_cancelled(cp: Checkpoint, path: str, op: OpenOp, now: int) -> Effect:
    """Tell that a step ends without another attempt."""
    why: Literal["cancel", "gather"] = "gather" if op.winding == "gather" else "cancel"
    return Emit(events.StepCancelled(cp.execution_id, cp.meta.flow, op.name, path, op.attempt, why, now))


def fail(cp: Checkpoint, path: str, op: OpenOp, error: Failure, now: int, started_at: int | None) -> Step:
    """End a step for good: the failure is a fact, and is delivered into the flow."""
    cp, effects = leave(cp, path, op, STEP_FAILED, op.attempt, op.attempt + 1)
    if not op.winding:
        cp = replace(cp, failed_path=path)
        effects.append(Write("failed", path.encode()))
    cp, more = record(cp, path, op, STEP_FAILED, now, error=error, started_at=started_at, cancel=bool(op.winding))
    return cp, effects + more
