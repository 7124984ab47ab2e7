"""`decide(checkpoint, event) -> (checkpoint, effects)`: the heart. Pure: same arguments, same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stepwell.core import inputs
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.effects import Effect
from stepwell.core.records import STEP
from stepwell.core.rules import commands, life, steps
from stepwell.core.status import PARKED, QUEUED, RUNNING, STEP_RUNNING, TERMINAL, WAITING

_RULES: dict[type, Callable[[Checkpoint, Any], tuple[Checkpoint, list[Effect]]]] = {
    inputs.Begin: life.begin,
    inputs.Moved: life.moved,
    inputs.ParkAsked: life.park,
    inputs.Resumed: steps.resumed,
    inputs.AttemptSucceeded: steps.succeeded,
    inputs.AttemptFailed: steps.failed,
    inputs.TimerFired: steps.fired,
    inputs.NotStarted: steps.not_started,
    inputs.SignalSent: commands.signal,
    inputs.CancelAsked: commands.cancel,
    inputs.RetryAsked: commands.retry,
}
_COMMANDS = (inputs.SignalSent, inputs.CancelAsked, inputs.RetryAsked)


def decide(checkpoint: Checkpoint, event: inputs.Input) -> tuple[Checkpoint, list[Effect]]:
    """What an event makes of an execution, and what has to be done about it.

    A command whose id is in `applied` changes nothing: it is a repeat.
    """
    if isinstance(event, _COMMANDS) and event.command_id and event.command_id in checkpoint.applied:
        return checkpoint, []
    return _RULES[type(event)](checkpoint, event)


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


def live_score(checkpoint: Checkpoint) -> str:
    """Score of the execution in its partition's `live` set: next due time in ms, `0` now, `+inf` untimed,
    `drop` for an execution that has ended."""
    status = checkpoint.status
    if status in (RUNNING, QUEUED):
        return "0"
    if status in TERMINAL:
        return "drop"
    if status == PARKED:
        return "+inf"
    due = min((op.due_at for op in checkpoint.open.values() if op.due_at is not None), default=None)
    return "+inf" if due is None else str(due)
