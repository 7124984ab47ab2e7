"""What can happen to an execution: the events that `decide` takes. Each carries its time (`now`, ms)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from stepwell.core.events import WokenBy
from stepwell.core.records import CutShort, Failure, FailureKind, OpKind
from stepwell.core.retry import Retry

NOT_MOVED: Final[Mapping[str, int]] = MappingProxyType({})


class Begin(msgspec.Struct, frozen=True, gc=False):
    """A queued execution starts."""

    now: int


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """An execution came back into memory. `clean`: its previous owner left no step running. Where it died, `cut` is
    what its black box showed as running; None: no box was read, so all that are open count as interrupted. `moved`: by
    how many ms the clock was set forward while an operation waited, by path. `woken_by`: what starts the retries that
    are overdue by now."""

    now: int
    clean: bool
    cut: tuple[CutShort, ...] | None = None
    moved: Mapping[str, int] = NOT_MOVED
    woken_by: WokenBy = "recovery"


class CutOff(msgspec.Struct, frozen=True, gc=False):
    """An execution came back into memory after its owner's death, and can't go on here: what was cut short is counted
    all the same. `clean` and `cut` as in `Resumed`."""

    now: int
    clean: bool
    cut: tuple[CutShort, ...] | None = None


class Declaration(msgspec.Struct, frozen=True, gc=False):
    """An operation that the flow has just begun to wait for.

    `seconds` is a timer's delay or a wait's timeout. `after_failure`: the branch that declares it has been given
    a failure, so the operation may be a consequence of it. `cleanup`: that branch has been cancelled, so the operation
    may start although the execution is being cancelled.
    """

    path: str
    kind: OpKind
    name: str
    seconds: float | None = None
    after_failure: bool = False
    cleanup: bool = False


class FlowReturned(msgspec.Struct, frozen=True, gc=False):
    """The flow's function returned; `value` is its encoded result."""

    value: bytes


class FlowRaised(msgspec.Struct, frozen=True, gc=False):
    """An exception left the flow's function. `path`: the step whose StepFailed it is, if it is one."""

    error: Failure
    path: str = ""
    attempts: int = 0
    cancelled: bool = False
    detail: str = ""


class Moved(msgspec.Struct, frozen=True, gc=False):
    """What the flow's code did with what it got: new operations, operations to wind up, or its end."""

    now: int
    declared: tuple[Declaration, ...] = ()
    wind_up: tuple[str, ...] = ()
    end: FlowReturned | FlowRaised | None = None


class AttemptSucceeded(msgspec.Struct, frozen=True, gc=False):
    """A step's attempt returned; `value` is its encoded result. Its body ended at `ended_at` (ms), which may be long
    before this is decided on."""

    now: int
    path: str
    attempt: int
    started_at: int
    ended_at: int
    value: bytes
    queued_ms: int = 0  # for which it was ready before its body began


class AttemptFailed(msgspec.Struct, frozen=True, gc=False):
    """A step's attempt raised, and the step's policy judged the error. Its body ended at `ended_at` (ms); `passed_ms`
    have really passed since, however the clock was set meanwhile."""

    now: int
    path: str
    attempt: int
    started_at: int | None
    ended_at: int
    error: Failure
    retryable: bool
    policy: Retry
    retry_after: float | None = None
    kind: FailureKind = "error"
    queued_ms: int = 0
    passed_ms: int = 0


class NotStarted(msgspec.Struct, frozen=True, gc=False):
    """An attempt that was declared has not begun, and must not begin since its step is being wound up."""

    now: int
    path: str
    attempt: int


class GraceOver(msgspec.Struct, frozen=True, gc=False):
    """The owner of an execution leaves, and does not wait any longer for an attempt whose body runs."""

    now: int
    path: str
    attempt: int


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The time that the open operation at `path` waited for has come."""

    now: int
    path: str
    woken_by: WokenBy = "timer"


class SignalSent(msgspec.Struct, frozen=True, gc=False):
    """Command `signal`; `payload` is JSON."""

    now: int
    command_id: str
    name: str
    payload: bytes


class CancelAsked(msgspec.Struct, frozen=True, gc=False):
    """Command `cancel`."""

    now: int
    command_id: str


class RetryAsked(msgspec.Struct, frozen=True, gc=False):
    """Command `retry`: reopen a failed execution, un-park a parked one, or end a backoff now.

    `obstacle`: why it can't be applied, where only the flow's code could tell.
    """

    now: int
    command_id: str
    obstacle: str = ""


class ParkAsked(msgspec.Struct, frozen=True, gc=False):
    """The execution can't go on without a person or a deploy."""

    now: int
    reason: str
    detail: str = ""
    path: str = ""  # where code and record differ, if it is that


Command: TypeAlias = SignalSent | CancelAsked | RetryAsked
Input: TypeAlias = (
    Begin
    | Resumed
    | CutOff
    | Moved
    | AttemptSucceeded
    | AttemptFailed
    | NotStarted
    | GraceOver
    | TimerFired
    | ParkAsked
    | Command
)
