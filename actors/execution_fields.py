"""What an execution's actor holds. In slots: there may be a hundred thousand, and each step looks there many times."""

from __future__ import annotations

from stepwell.actors import messages as m
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.left import Left
from stepwell.actors.shard import Shard
from stepwell.core.effects import StartAttempt
from stepwell.core.events import Event
from stepwell.core.transitions import Place
from stepwell.flow.machine import Machine, Turn
from stepwell.store.leases import Grant
from stepwell.store.requests import Applied, Commit, Restore

__all__ = ["ExecutionFields"]


class ExecutionFields(PooledActor):
    """`grant`: under which its row was read. `left`: how its last owner left it. `park`: do only that."""

    __slots__ = (
        "_asked",
        "_busy",
        "_fields",
        "_grant",
        "_handled",
        "_held_back",
        "_id",
        "_in_flight",
        "_later",
        "_leaving",
        "_left",
        "_machine",
        "_pardon",
        "_park",
        "_partition",
        "_pending",
        "_row_backoff",
        "_row_due",
        "_row_place",
        "_row_status",
        "_settling",
        "_shard",
        "_turn",
        "_turn_at",
        "_unread",
    )

    def __init__(
        self,
        shard: Shard,
        execution_id: str,
        fields: dict[str, bytes],
        grant: Grant,
        left: Left,
        park: m.Park | None = None,
    ) -> None:
        self._shard = shard
        self._grant = grant
        self._id = execution_id
        self._partition = shard.keys.partition_of(execution_id)
        self._left = left
        self._pardon = "i" if left.suspect else ""  # what the next commit takes back
        self._park = park
        self._fields: dict[str, bytes] | None = fields
        self._machine: Machine | None = None
        self._later: list[object] | None = None  # made when needed: most executions wait with nothing in it
        self._in_flight: Commit | Restore | None = None
        self._turn: Turn | None = None  # whose commit is in flight: what it asks for happens afterwards
        self._turn_at = 0.0  # when the decision was made whose commit is in flight, in monotonic seconds
        self._pending: tuple[Applied, ...] = ()  # entries whose effect the next commit holds
        self._row_status = ""
        self._row_due: float | None = None
        self._row_backoff: int | None = None
        self._row_place: Place | None = None  # None: that of an execution which has not ended and is not parked
        self._handled = 0
        self._unread: Event | None = None  # tells that it was parked, once that is written
        self._settling: m.StepDone | m.StepErred | None = None  # the outcome that is being recorded
        self._busy: bool | None = None  # what the dispatcher was told last
        self._leaving = False
        self._held_back: dict[str, StartAttempt] | None = None  # what it does not begin since it was told to leave
        self._asked = False  # to leave, since then
