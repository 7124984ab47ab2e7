"""What `decide` asks for. Writes go into one commit; the rest happens when that commit is acknowledged, except
`Deliver`, which only feeds the flow's code."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stepwell.core.events import Event, WokenBy
from stepwell.core.records import Fact, Outcome


class Write(msgspec.Struct, frozen=True, gc=False):
    """Set one field of the row."""

    field: str
    value: bytes


class Erase(msgspec.Struct, frozen=True, gc=False):
    """Remove one field of the row."""

    field: str


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Give a recorded fact to the flow's code."""

    path: str
    fact: Fact


class StartAttempt(msgspec.Struct, frozen=True, gc=False):
    """Run the step's body once."""

    path: str
    attempt: int


class Withdraw(msgspec.Struct, frozen=True, gc=False):
    """If the attempt's body has not begun, see to it that it never does, and say so with `NotStarted`."""

    path: str
    attempt: int


class ArmTimer(msgspec.Struct, frozen=True, gc=False):
    """Send `TimerFired` for the operation in `delay_ms` milliseconds, with that cause."""

    path: str
    delay_ms: int
    woken_by: WokenBy = "timer"


class DisarmTimer(msgspec.Struct, frozen=True, gc=False):
    """Forget the operation's timer."""

    path: str


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Tell whoever sent the command what became of it; part of the same commit."""

    command_id: str
    outcome: Outcome


class Redrive(msgspec.Struct, frozen=True, gc=False):
    """Build the flow's code anew from the recorded facts."""


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Tell the subscribers (metrics, logs, live views) what happened."""

    event: Event


Effect: TypeAlias = Write | Erase | Deliver | StartAttempt | Withdraw | ArmTimer | DisarmTimer | Answer | Redrive | Emit
