"""The parts of a checkpoint as they stand in a row's fields, each one JSON object.

Times are milliseconds since the epoch on the namespace's clock.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from stepwell.core.attributes import Attributes
from stepwell.core.formats import FORMAT
from stepwell.core.status import STEP_COMPLETED

NO_VALUE = msgspec.Raw(b"")  # the same object everywhere: fields at their default are left out by identity
TIME_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999
Ms: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
OpKind = Literal["step", "timer", "signal"]
OpStatus: TypeAlias = Literal["ready", "running", "backoff", "waiting"]
FactStatus: TypeAlias = Literal["completed", "failed", "cancelled", "timed_out"]
FailureKind: TypeAlias = Literal["error", "timeout", "crash", "interrupted"]
"""How a failed attempt ended: it raised, took too long, its own process died, or its shard did (too often)."""
STEP: Literal["step"] = "step"
TIMER: Literal["timer"] = "timer"
SIGNAL: Literal["signal"] = "signal"


class Meta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Facts of an execution that never change: field `meta`."""

    flow: str
    created_at: Ms
    input_hash: str
    root: str = ""  # empty: the execution is its own root
    run: Count = 0
    format: int = FORMAT
    trace: str = ""  # `traceparent` of the span that it was started in; no key or token depends on it
    trace_state: str = ""  # and its `tracestate`
    attributes: Attributes | None = None


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What went wrong in one attempt or operation."""

    type: str
    message: str
    reason: str = ""  # why it was not tried again; empty: it was, or the budget was used up
    where: str = ""  # place in the user's code that it passed last: `folder/file.py:12 in charge`


class _Cut:
    """What may have been cut short: `interruptions` times by a crash, `drains` times by the end of its worker."""

    __slots__ = ()
    interruptions: int
    drains: int

    @property
    def cuts(self) -> int:
        """How often it was cut short."""
        return self.interruptions + self.drains


class Attempt(_Cut, msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One failed attempt: field `a:<path>:<n>`; a successful one is part of its fact."""

    n: Count
    ended_at: Ms
    error: Failure
    started_at: Ms | None = None
    due_at: Ms | None = None  # when the next attempt is due; None: there was no next
    last: Count = 0  # number of the last attempt that the budget allows; 0: not known, or there was no next
    interruptions: Count = 0  # of the step by crashes, until this attempt ended
    drains: Count = 0  # of the step by owners that left, until then


class OpenOp(_Cut, msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An operation that the flow waits for: field `p:<path>`."""

    kind: OpKind
    status: OpStatus
    token: str
    declared_at: Ms
    name: str = ""  # step or signal name
    attempt: Count = 0  # number of the current or coming attempt, steps only
    budget_from: Count = 0  # attempts before this one don't count (a manual retry renews the budget)
    interruptions: Count = 0  # by crashes, which it may have caused
    drains: Count = 0  # how often its owner left amid it, for which nobody is to blame
    let_go: bool = False  # its last owner has left amid it, and has told so
    due_at: Ms | None = None
    delay_ms: Ms | None = None  # the recorded delay: a stepped Redis clock never lengthens it
    generation: Count = 0
    lane: bool = False  # it cut short its shard, or may have: it runs in a process of its own
    winding: str = ""  # why nothing new may start here: `cancel` or `gather`
    late_from: Ms | None = None  # since when the running retry is late; None: since it was taken up by its owner

    @property
    def failures(self) -> int:
        """Attempts of the current budget before the current one."""
        return self.attempt - 1 - self.budget_from


class CutShort(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt that its shard's death cut short, as the black box shows. `named`: its own code was at work."""

    token: str
    attempt: Count
    named: bool
    path: str = ""


class Fact(_Cut, msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A recorded outcome of an operation: field `r:<path>`. Replay delivers facts in the order of `seq`.

    The defaults are those of a step that completed at its first attempt: they are not written, since every step of
    every execution in memory would pay for them.
    """

    seq: Count
    token: str
    declared_at: Ms
    ended_at: Ms
    kind: OpKind = STEP
    status: FactStatus = STEP_COMPLETED
    value: msgspec.Raw = NO_VALUE
    error: Failure | None = None
    attempt: Count = 1
    started_at: Ms | None = None
    interruptions: Count = 0
    drains: Count = 0
    generation: Count = 0
    cancel: bool = False  # delivered as Cancelled, whatever the outcome
    superseded: bool = False  # a manual retry reopened the operation
    name: str = ""


class Signal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A signal that came before its `wait_for`: field `s:<seq>`."""

    name: str
    payload: msgspec.Raw
    at: Ms


class LeftOpen(_Cut, msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An operation that a failure left behind: `error.open[path]`; a retry brings it back as it was."""

    kind: OpKind
    token: str
    attempts: Count  # attempts made
    status: OpStatus | FactStatus  # what it was when it was left
    declared_at: Ms
    next_attempt: Count = 0
    budget_from: Count = 0
    interruptions: Count = 0
    drains: Count = 0
    due_at: Ms | None = None
    name: str = ""
    generation: Count = 0


class FailedStep(msgspec.Struct, frozen=True, gc=False):
    """The step that ended an execution."""

    path: str
    token: str
    attempts: Count


class TerminalError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an execution ended in `error`, or is parked: field `error`."""

    type: str
    message: str
    at: Ms
    attempts: Count = 0
    failed_step: FailedStep | None = None
    open: dict[str, LeftOpen] = {}
    wound: tuple[str, ...] = ()  # completed while the failure wound them up: a retry delivers their results
    compensated: bool = False  # the flow went on after the failure: retry is refused
    detail: str = ""
    retried_at: Ms | None = None  # when a retry by hand superseded it
    retry: Count = 0  # and the how manieth that was


class Outcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of a command; whoever sent it reads this."""

    applied: bool
    status: str  # the execution's status afterwards
    reason: str = ""


encode = msgspec.json.Encoder().encode


def encode_kept(record: Fact | Attempt) -> bytes:
    """The same for what stays in memory: a copy of just its size, since the encoder's own bytes keep a margin."""
    return bytes(memoryview(encode(record)))


decode_meta = msgspec.json.Decoder(Meta).decode
decode_open = msgspec.json.Decoder(OpenOp).decode
decode_fact = msgspec.json.Decoder(Fact).decode
decode_attempt = msgspec.json.Decoder(Attempt).decode
decode_signal = msgspec.json.Decoder(Signal).decode
decode_error = msgspec.json.Decoder(TerminalError).decode
decode_left = msgspec.json.Decoder(dict[str, LeftOpen]).decode
decode_failures = msgspec.json.Decoder(tuple[TerminalError, ...]).decode
decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
decode_outcome = msgspec.json.Decoder(Outcome).decode
