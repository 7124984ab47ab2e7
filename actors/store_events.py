"""What the shard's own threads observe about the store and about themselves; metrics count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from stepwell.store.replies import Reply


class BatchWritten(msgspec.Struct, gc=False):
    """A pipeline was answered; `seconds` from sending to the last reply."""

    replies: tuple[Reply, ...]
    seconds: float


class StoreTrouble(msgspec.Struct, gc=False):
    """The store could not be reached, or refused for now."""

    reason: str


class NotSafeYet(msgspec.Struct, gc=False):
    """A batch was executed, but was not as safe in time as the durability mode wants; it is sent again."""


class Healed(msgspec.Struct, gc=False):
    """A row that Redis had lost was restored from memory."""

    execution_id: str


class TailLost(msgspec.Struct, gc=False):
    """Redis has lost acknowledged writes of a partition."""

    partition: int


class RowDiverged(msgspec.Struct, gc=False):
    """A row was changed by somebody else; memory was dropped."""

    execution_id: str


class Fenced(msgspec.Struct, gc=False):
    """A write met another owner's lease; `lost`: the partition was dropped."""

    partition: int
    lost: bool


class SweepFound(msgspec.Struct, gc=False):
    """A sweep found work that nobody held: a fault or a bug."""

    entries: int
    executions: int


class ExecutionsCounted(msgspec.Struct, gc=False):
    """How many executions of the shard's partitions have not ended, by status; in memory or not.

    `waiting`, of those that wait and run no step: `timed` until a time that is known (a timer, a timeout, the end of a
    backoff), `untimed` for something that may never come.
    """

    sizes: dict[str, int]
    waiting: dict[str, int]


class BackoffsCounted(msgspec.Struct, gc=False):
    """Of the shard's partitions, by flow: how many executions have a step that backs off, in memory or not, and when
    the first of these steps is due (ms). Of a flow that is not named none does.

    An execution counts once, also where other steps of it run meanwhile; one that is parked does not count.
    """

    by_flow: dict[str, tuple[int, int]]


class RowMissing(msgspec.Struct, gc=False):
    """An execution was listed and has no row; it was taken off the lists."""

    execution_id: str


class DeadLettered(msgspec.Struct, gc=False):
    """An inbox entry could not be applied. `kind` is one of a few words, `reason` the sentence."""

    kind: str
    reason: str


class LeftAlone(msgspec.Struct, gc=False):
    """Something of a newer format was found and is left where it is; `kind` is `row`, `entry` or `ingress`."""

    kind: str


class IngressTaken(msgspec.Struct, gc=False):
    """Entries of the ingress that had their effect; `kind` is `start` or a command's name."""

    kind: str
    count: int


class SuspectOpened(msgspec.Struct, gc=False):
    """An execution or an inbox entry (`kind`) is opened though shards died on it before."""

    kind: str
    name: str
    strikes: int
    cause: str


class GuaranteeSeen(msgspec.Struct, gc=False):
    """Which guarantee is in force, as labels."""

    labels: dict[str, str]


class ActorFailed(msgspec.Struct, gc=False):
    """An execution's actor failed; `parked`: too often."""

    execution_id: str
    error: str
    parked: bool


StoreEvent: TypeAlias = (
    BatchWritten
    | StoreTrouble
    | NotSafeYet
    | Healed
    | TailLost
    | RowDiverged
    | RowMissing
    | Fenced
    | SweepFound
    | ExecutionsCounted
    | BackoffsCounted
    | DeadLettered
    | LeftAlone
    | IngressTaken
    | GuaranteeSeen
    | SuspectOpened
    | ActorFailed
)
StoreObserver: TypeAlias = Callable[[StoreEvent], None]
