"""`decide(checkpoint, event) -> (checkpoint, effects)`: the heart. Pure: same arguments, same answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from stepwell.core import inputs
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.effects import Effect
from stepwell.core.records import STEP
from stepwell.core.rules import commands, life, steps
from stepwell.core.status import PARKED, RUNNING, SETTLED, STEP_BACKOFF, STEP_RUNNING, TERMINAL, WAITING

Place: TypeAlias = tuple[int, str]
_Rule: TypeAlias = Callable[[Checkpoint, Any], tuple[Checkpoint, list[Effect]]]
_RULES: dict[type, _Rule] = {
    inputs.Begin: life.begin,
    inputs.Moved: life.moved,
    inputs.ParkAsked: life.park,
    inputs.Resumed: steps.resumed,
    inputs.CutOff: steps.cut_off,
    inputs.AttemptSucceeded: steps.succeeded,
    inputs.AttemptFailed: steps.failed,
    inputs.TimerFired: steps.fired,
    inputs.NotStarted: steps.not_started,
    inputs.GraceOver: steps.grace_over,
}
_COMMANDS: dict[type, _Rule] = {
    inputs.SignalSent: commands.signal,
    inputs.CancelAsked: commands.cancel,
    inputs.RetryAsked: commands.retry,
}


def decide(checkpoint: Checkpoint, event: inputs.Input) -> tuple[Checkpoint, list[Effect]]:
    """What an event makes of an execution, and what has to be done about it.

    A command whose id is in `applied` changes nothing: it is a repeat.
    """
    rule = _RULES.get(type(event))
    if rule is not None:
        return rule(checkpoint, event)
    command = cast(inputs.Command, event)
    if command.command_id and command.command_id in checkpoint.applied:
        return checkpoint, []
    return _COMMANDS[type(command)](checkpoint, command)


def settle(checkpoint: Checkpoint) -> Checkpoint:
    """The status that follows from the open operations: `running` if a step may run, else `waiting`."""
    if checkpoint.status not in (RUNNING, WAITING):
        return checkpoint
    status = WAITING
    for op in checkpoint.open.values():
        if op.kind == STEP and op.status == STEP_RUNNING:
            status = RUNNING
            break
    return checkpoint if status == checkpoint.status else replace(checkpoint, status=status)


def next_due(checkpoint: Checkpoint) -> float | None:
    """When the execution has to be looked at next, in ms: 0 now, infinity for an untimed wait, None once it ended."""
    return dues(checkpoint)[0]


def dues(checkpoint: Checkpoint) -> tuple[float | None, int | None]:
    """`next_due`, and when the first of its steps that back off is due (ms): None where none does, or it is parked."""
    status = checkpoint.status
    if status in TERMINAL:
        return None, None
    if status == PARKED:
        return math.inf, None
    due: float = math.inf
    backoff: int | None = None
    for op in checkpoint.open.values():
        at = op.due_at
        if at is not None:
            due = min(due, at)
            if op.status == STEP_BACKOFF and (backoff is None or at < backoff):
                backoff = at
    return (due if status == WAITING else 0), backoff


def place_of(checkpoint: Checkpoint) -> Place:
    """By what people find it: the time when it ended or was parked (ms), until then when it was created; and the type
    of the error that it is in or parked for, '' for none."""
    error = checkpoint.error
    if checkpoint.status not in SETTLED:
        return checkpoint.meta.created_at, ""
    at = checkpoint.ended_at if checkpoint.terminal or error is None else error.at
    return checkpoint.meta.created_at if at is None else at, "" if error is None else error.type


def is_busy(checkpoint: Checkpoint, now: int) -> bool:
    """Whether it counts for the limit of running executions at that time (ms)."""
    if checkpoint.status != WAITING:
        return checkpoint.status == RUNNING
    # What comes back overdue runs in a moment: its place must not go to another one before that.
    due = next_due(checkpoint)
    return due is not None and due <= now


def score_of(due: float | None) -> str:
    """That time as a score of the partition's `live` set; `drop` takes the execution out."""
    if due is None:
        return "drop"
    return "+inf" if due == math.inf else str(due)
