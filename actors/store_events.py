"""What the shard's own threads observe about the store and about themselves; metrics count them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from stepwell.store.census import Lying
from stepwell.store.replies import Reply
from stepwell.store.requests import Request


class BatchWritten(msgspec.Struct, gc=False):
    """A pipeline of the mirror was answered, request by request; `seconds` from sending to the last reply."""

    requests: Sequence[Request]
    replies: Sequence[Reply]
    seconds: float


class StoreTrouble(msgspec.Struct, gc=False):
    """A part of the shard could not use the store, or was refused for now: once for each time that it tried. `kind` is
    one of `stepwell.store.troubles.KINDS`."""

    part: Literal["mirror", "inbox", "leases", "ingress"]
    kind: str
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


class PartitionGained(msgspec.Struct, gc=False):
    """A partition has become ours. `cause`: why something may have been cut short there, '' where that can't be. Its
    last owner died and its black box was read (boxed), was found dead on this host (dead), or its lease lapsed."""

    partition: int
    cause: Literal["", "boxed", "dead", "lapsed"]


class PartitionRecovered(msgspec.Struct, gc=False):
    """All that may have been cut short in a partition is seen to, `seconds` after it became ours."""

    partition: int
    seconds: float


class PartitionGone(msgspec.Struct, gc=False):
    """A partition is ours no longer: it was handed over, or the lease was lost."""

    partition: int
    why: Literal["handed over", "lost"]


class DuplicateSuppressed(msgspec.Struct, gc=False):
    """A repeat had no second effect: a `command` that was applied before, a `start` of an execution that is there."""

    kind: Literal["command", "start"]
    execution_id: str


class Fenced(msgspec.Struct, gc=False):
    """Writes met no lease or another's, so it was looked whether the partition is still ours; `lost`: it is not."""

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


class LyingCounted(msgspec.Struct, gc=False):
    """What lies in the shard's partitions; `oldest_age` in seconds of the oldest inbox entry that is neither applied
    nor held back for want of room, 0 where there is none."""

    lying: Lying
    oldest_age: float


class StartsWait(msgspec.Struct, gc=False):
    """How long starts have waited for room: by flow the age in seconds of the one that is let in next, 0 where none
    waits. All flows of the shard are named, and others as long as one of them waits ('': a flow that is not known)."""

    ages: dict[str, float]


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


class StepOverran(msgspec.Struct, gc=False):
    """A body went on for `seconds`, beyond its step's `timeout`, and then ended by itself: a thread can't be stopped,
    nor can a body that holds up the loop. Its outcome counts. `key`: the idempotency key; `trace`: the trace's id."""

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    key: str
    seconds: float
    timeout: float
    trace: str = ""


StoreEvent: TypeAlias = (
    BatchWritten
    | PartitionGained
    | PartitionRecovered
    | PartitionGone
    | DuplicateSuppressed
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
    | LyingCounted
    | StartsWait
    | DeadLettered
    | LeftAlone
    | IngressTaken
    | GuaranteeSeen
    | SuspectOpened
    | ActorFailed
    | StepOverran
)
STORE_EVENTS: Final[tuple[type[StoreEvent], ...]] = get_args(StoreEvent)
StoreObserver: TypeAlias = Callable[[StoreEvent], None]
