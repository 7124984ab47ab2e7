"""Messages between the actors of a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from stepwell.actors.kit.ref import AnyRef
from stepwell.core.events import WokenBy
from stepwell.core.records import Failure, FailureKind
from stepwell.core.retry import Retry
from stepwell.core.status import PARK_CRASHED
from stepwell.store.inbox import Entry
from stepwell.store.replies import Reply
from stepwell.store.requests import DeadLetter, ReadRev, Revive


class Doorbell(msgspec.Struct, gc=False):
    """Leave to begin (or go on with) an execution; `entry_id` is the inbox entry that rang, '' for none, and `made_at`
    when it was made (ms), by its sender's clock."""

    entry_id: str = ""
    made_at: int = 0


class CommandMail(msgspec.Struct, gc=False):
    """A command for an execution; `data` is JSON."""

    entry_id: str
    command_id: str
    type: str
    data: bytes


Mail: TypeAlias = Doorbell | CommandMail


class StepDone(msgspec.Struct, gc=False):
    """An attempt returned; `value` is its encoded result. It was ready for `queued_ms` before its body began, and ended
    at `ended_at` (ms), whenever its actor comes to hear of it."""

    path: str
    attempt: int
    started_at: int
    ended_at: int
    value: bytes
    queued_ms: int = 0


class StepErred(msgspec.Struct, gc=False):
    """An attempt raised; `policy` is its step's. Its body ended at `ended_at` (ms), when the monotonic clock read
    `ended` (seconds)."""

    path: str
    attempt: int
    started_at: int | None
    ended_at: int
    ended: float
    error: Failure
    retryable: bool
    policy: Retry
    retry_after: float | None = None
    kind: FailureKind = "error"
    queued_ms: int = 0


class StepHeld(msgspec.Struct, gc=False):
    """An attempt was not begun because the partition's lease might lapse; it has to be asked for again."""

    path: str
    attempt: int


class NeverBegun(msgspec.Struct, gc=False):
    """An attempt was declared, but its step was wound up before it could begin."""

    path: str
    attempt: int


class BodyBegan(msgspec.Struct, gc=False):
    """The body of a later attempt began, `late_ms` after it was due."""

    path: str
    attempt: int
    at: int
    late_ms: int


class GraceOver(msgspec.Struct, gc=False):
    """The shard leaves and waits no longer: what comes of this attempt's body will not be told."""

    path: str
    attempt: int


class TimerDue(msgspec.Struct, gc=False):
    """The timer of the open operation at `path`."""

    path: str
    woken_by: WokenBy = "timer"


class StartAgain(msgspec.Struct, gc=False):
    """Ask once more for an attempt that was held."""

    path: str
    attempt: int


class Written(msgspec.Struct, gc=False):
    """The store's answer to the commit or restore in flight."""

    reply: Reply


class StoredRev(msgspec.Struct, gc=False):
    """Redis has lost writes: the revision that it has now, -1 where the row is gone."""

    rev: int


class Drop(msgspec.Struct, gc=False):
    """The partition is no longer ours: forget the execution, write nothing."""


class Leave(msgspec.Struct, gc=False):
    """The partition is being handed over: begin nothing, let running attempts end, record them, and leave memory."""


class Stay(msgspec.Struct, gc=False):
    """The partition is served on after all: go on with what `Leave` held up."""


class Passivate(msgspec.Struct, gc=False):
    """Leave memory when nothing runs, nothing is under way and nothing is due in a moment."""


class Park(msgspec.Struct, gc=False):
    """Why an execution is parked without being read."""

    reason: str
    detail: str

    @property
    def in_short(self) -> str:
        """The reason and one line of the detail: of a traceback the last one, which says what was raised."""
        return f"{self.reason}: {self.detail.splitlines()[-1 if self.reason == PARK_CRASHED else 0]}"


class StopGranted(msgspec.Struct, gc=False):
    """The dispatcher has sent nothing more: the actor may stop."""


# To the dispatcher.


class InboxRead(msgspec.Struct):
    """New inbox entries."""

    entries: list[Entry]


class Swept(msgspec.Struct):
    """What a sweep saw: old inbox entries, and executions that are overdue. Whatever no actor holds is a find."""

    entries: list[Entry]
    due: list[str]


class Recover(msgspec.Struct):
    """Unfinished executions of a partition with their due times in ms: what it had when it became ours, and later what
    falls due."""

    partition: int
    executions: list[tuple[str, float]]


class LookAround(msgspec.Struct):
    """A second has passed: somebody may have rested long enough."""


class CountStarts(msgspec.Struct):
    """Say which starts wait for room."""


class Recovering(msgspec.Struct):
    """Whether `Recover` is still to come for a partition that has become ours."""

    active: bool


class PartitionLost(msgspec.Struct):
    """A partition is no longer ours."""

    partition: int


class TailLost(msgspec.Struct):
    """Redis has lost acknowledged writes of a partition; also to the healer."""

    partition: int


class Revived(msgspec.Struct):
    """The row of an execution that had left memory is as we knew it, or newer."""

    execution_id: str


class RowRead(msgspec.Struct):
    """A row that was asked for; `reply` is Loaded, or what went wrong."""

    execution_id: str
    reply: Reply


class ActorGone(msgspec.Struct):
    """An execution's actor failed. `park`: it did so too often."""

    execution_id: str
    ref: AnyRef
    park: Park | None


class EntriesDone(msgspec.Struct):
    """These inbox entries are applied: their commit is acknowledged."""

    execution_id: str
    partition: int
    entry_ids: list[str]


class BadCommand(msgspec.Struct):
    """Mail that can never be applied; it becomes a dead letter."""

    execution_id: str
    partition: int
    mail: Mail
    reason: str


class Busy(msgspec.Struct):
    """An execution began to run steps, or rests; for the limit of running executions."""

    execution_id: str
    busy: bool


class MayStop(msgspec.Struct):
    """An actor asks to leave memory; it has handled that many pieces of mail. `told`: `Leave` told it to, and what it
    has not handled stays in the inbox."""

    execution_id: str
    ref: AnyRef
    handled: int
    told: bool = False


class Listed(msgspec.Struct):
    """All that a partition had when it became ours, under that lease, has been told."""

    partition: int
    lease: str


class CheckRecovered(msgspec.Struct):
    """Has all been loaded that an earlier owner's end may have interrupted in these partitions? Then note it."""

    partitions: list[int]


class HandOver(msgspec.Struct):
    """These partitions are handed over; `quiet` is to be told of each that nothing is left of."""

    partitions: list[int]
    quiet: Callable[[int], None]


class ServeOn(msgspec.Struct):
    """These partitions are not handed over after all."""

    partitions: list[int]


class Drain(msgspec.Struct):
    """Begin nothing new."""


# To the healer.


class Living(msgspec.Struct):
    """The executions of a partition that have an actor."""

    partition: int
    refs: dict[str, AnyRef]


class Settled(msgspec.Struct):
    """A round of renewals, sent at that monotonic second, found nothing missing."""

    sent: float


class LetterAnswered(msgspec.Struct):
    """What the store says to a dead letter."""

    letter: DeadLetter
    reply: Reply


class Answered(msgspec.Struct):
    """What the store says to a request that is no execution's own."""

    request: ReadRev | Revive
    reply: Reply
