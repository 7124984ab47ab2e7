"""Typed events: each transition emits one, at one place. Metrics, logs, traces and live views subscribe to them.

They are told once their commit is acknowledged, in the order of the commits. Times (`at` and those that end with `_at`)
are milliseconds since the epoch on the namespace's clock, when it was decided, or when the attempt ended that it is of.
docs/events.md has the table.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from stepwell.core.records import FactStatus, FailureKind, OpKind

WokenBy: TypeAlias = Literal["timer", "manual", "recovery", "signal"]
Cause: TypeAlias = Literal["crash", "drain"]
BackoffEnd: TypeAlias = Literal["timer", "manual", "recovery", "signal", "cancel", "gather", "parked", "unloaded"]
WOKEN_BY: Final = frozenset(get_args(WokenBy))
"""What ends a backoff with another attempt: its timer, a person's retry, being found overdue when its execution was
loaded (recovery), or a message that brought the execution back when it was overdue (signal)."""


class ExecutionBegan(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A queued execution started; `waited_ms` since it was created."""

    execution_id: str
    flow: str
    waited_ms: int
    at: int


class ExecutionParked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The execution needs a person or a deploy. `path`: where code and record differ, if it is that."""

    execution_id: str
    flow: str
    reason: str
    detail: str
    at: int
    path: str = ""


class ExecutionResumed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A parked or failed execution goes on. `was`: `parked` or `error`; `why`: a person's `retry`, or `deployed`: its
    flow is known here now."""

    execution_id: str
    flow: str
    was: str
    why: str
    at: int


class ExecutionEnded(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The execution is completed, in error, or cancelled. `reason` names the kind of an error; the rest tells it, and
    `detail` where it was raised."""

    execution_id: str
    flow: str
    status: str
    reason: str
    duration_ms: int
    at: int
    error_type: str = ""
    message: str = ""
    detail: str = ""


class StepCompleted(msgspec.Struct, frozen=True, gc=False, tag=True, omit_defaults=True):
    """A step's result was recorded, `duration_ms` after its body began; before that it was ready for `queued_ms`."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    duration_ms: int
    started_at: int
    queued_ms: int = 0


class AttemptFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An attempt failed and the next one is due at `due_at`, `delay_ms` after the failure."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    max_attempts: int  # number of the last attempt that the budget allows
    kind: FailureKind
    error_type: str
    message: str
    delay_ms: int
    due_at: int
    token: str
    key: str
    asked: bool  # the error asked for its own delay
    started_at: int | None = None
    duration_ms: int = 0
    queued_ms: int = 0

    @property
    def at(self) -> int:
        """When it ended."""
        return self.due_at - self.delay_ms

    @property
    def attempts_left(self) -> int:
        """How many more attempts the budget allows; 1: the next one is the last."""
        return self.max_attempts - self.attempt


class StepGaveUp(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step failed for good. `reason`: exhausted, fatal, payload, give_up_on, interrupted, ...; `kind`: how its last
    attempt ended (`at`). It was `interrupted`: no attempt ended, too many were cut short."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    reason: str
    kind: FailureKind
    error_type: str
    message: str
    token: str
    key: str
    at: int
    started_at: int | None = None
    duration_ms: int = 0
    queued_ms: int = 0


class StepCancelled(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step ended before its attempt number `attempt`, which never begins: its execution was cancelled (cancel), or a
    gather that it belongs to failed (gather). One that runs is waited for, and ends like any other."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    why: Literal["cancel", "gather"]
    at: int


class BackoffLeft(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step stopped backing off before its attempt number `attempt`. `why`: what started that attempt (`WOKEN_BY`),
    what made it needless (cancel, gather), or what put it off: the execution is parked, or leaves memory (unloaded)."""

    execution_id: str
    flow: str
    step: str
    path: str
    why: BackoffEnd
    attempt: int
    at: int


class BackoffResumed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A step that was backing off came back into memory with its execution, `remaining_ms` before it is due."""

    execution_id: str
    flow: str
    step: str
    path: str
    remaining_ms: int
    attempt: int
    at: int

    @property
    def due_at(self) -> int:
        """When its next attempt is due."""
        return self.at + self.remaining_ms


class RetryStarted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A later attempt's body began, `lateness_ms` after it was due, or was asked for by hand. One that had begun, or
    may have, when another owner took it up begins anew, late from then on."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    lateness_ms: int
    at: int


class StepInterrupted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An attempt may have been cut short by a crash, or its owner left and did not wait longer (drain); it keeps its
    number and runs again. `interruptions`: how often it was cut short by now. `set_apart`: in a process of its own from
    now on, for its own code was at work at the crash, or it was cut short before."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    interruptions: int
    at: int
    set_apart: bool = False
    cause: Cause = "crash"


class ResultDropped(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A result came for an attempt that is not running (any more)."""

    execution_id: str
    flow: str
    path: str
    attempt: int
    at: int


class WaitBegan(msgspec.Struct, frozen=True, gc=False, tag=True, omit_defaults=True):
    """The flow waits for a timer or a signal (`kind`; `name` is the signal's), at most until `due_at`."""

    execution_id: str
    flow: str
    path: str
    kind: OpKind
    at: int
    name: str = ""
    due_at: int | None = None


class WaitEnded(msgspec.Struct, frozen=True, gc=False, tag=True, omit_defaults=True):
    """A wait is over after `waited_ms`: the time or the signal has come (completed), the signal did not come in time
    (timed_out), or it was cancelled. A signal that had come before ends it without a begin."""

    execution_id: str
    flow: str
    path: str
    kind: OpKind
    outcome: FactStatus
    waited_ms: int
    at: int
    name: str = ""


class CommandDone(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A command was applied or refused."""

    execution_id: str
    flow: str
    command: str
    applied: bool
    reason: str
    at: int
    command_id: str


Event: TypeAlias = (
    ExecutionBegan
    | ExecutionParked
    | ExecutionResumed
    | ExecutionEnded
    | StepCompleted
    | AttemptFailed
    | StepGaveUp
    | StepCancelled
    | BackoffLeft
    | BackoffResumed
    | RetryStarted
    | StepInterrupted
    | ResultDropped
    | WaitBegan
    | WaitEnded
    | CommandDone
)
EVENTS: Final[tuple[type[Event], ...]] = get_args(Event)
"""All of them, in the order of this file."""
