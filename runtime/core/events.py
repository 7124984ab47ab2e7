"""Typed events: each transition emits one, at one place. Metrics, logs and live views subscribe to them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class ExecutionBegan(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A queued execution started; `waited_ms` since it was created."""

    execution_id: str
    flow: str
    waited_ms: int


class StepCompleted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step's result was recorded."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    duration_ms: int


class AttemptFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An attempt failed and the next one is due at `due_at`, `delay_ms` after the failure."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    max_attempts: int  # number of the last attempt that the budget allows
    error_type: str
    message: str
    delay_ms: int
    due_at: int
    token: str
    key: str
    asked: bool  # the error asked for its own delay


class StepGaveUp(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step failed for good. `reason`: exhausted, fatal, payload, give_up_on, interrupted, ..."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    reason: str
    error_type: str
    message: str
    token: str
    key: str


class BackoffLeft(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step stopped backing off. `why`: due, retry (asked by hand), cancel, gather, parked, unloaded."""

    execution_id: str
    flow: str
    step: str
    path: str
    why: str


class BackoffResumed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step that was backing off came back into memory with its execution."""

    execution_id: str
    flow: str
    step: str
    path: str
    remaining_ms: int


class RetryStarted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A later attempt's body starts, `lateness_ms` after it was due."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    lateness_ms: int


class StepInterrupted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An attempt may have been cut short by a crash; it keeps its number and runs again. `set_apart`: in a process of
    its own from now on, for its own code was at work at the crash, or it was cut short before."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    interruptions: int
    set_apart: bool = False


class ResultDropped(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A result came for an attempt that is not running (any more)."""

    execution_id: str
    flow: str
    path: str
    attempt: int


class ExecutionParked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The execution needs a person or a deploy."""

    execution_id: str
    flow: str
    reason: str
    detail: str


class ExecutionEnded(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The execution is completed, in error, or cancelled. `reason` names the kind of an error; the rest tells it, and
    `detail` where it was raised."""

    execution_id: str
    flow: str
    status: str
    reason: str
    duration_ms: int
    error_type: str = ""
    message: str = ""
    detail: str = ""


class CommandDone(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A command was applied or refused."""

    execution_id: str
    flow: str
    command: str
    applied: bool
    reason: str


Event: TypeAlias = (
    ExecutionBegan
    | StepCompleted
    | AttemptFailed
    | StepGaveUp
    | BackoffLeft
    | BackoffResumed
    | RetryStarted
    | StepInterrupted
    | ResultDropped
    | ExecutionParked
    | ExecutionEnded
    | CommandDone
)
