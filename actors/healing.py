"""The Healer: when Redis has lost acknowledged writes of a partition, it looks at all rows of which memory knows more.

Who is in memory compares its own revision with the stored one and restores itself; who left memory a moment ago is
restored from what is kept of it. Rows are asked for in small groups, so that commits pass between them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeVar

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.shard import Shard
from stepwell.core import row
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.status import PARK_REASONS
from stepwell.core.transitions import dues, place_of, score_of
from stepwell.metrics.saying import say
from stepwell.store.replies import Committed, Loaded
from stepwell.store.requests import ReadRev, Restore, Revive

logger = logging.getLogger("stepwell.healing")
ASK_AT_ONCE: Final = 64
R = TypeVar("R", bound=Restore)


class Healer(PooledActor):
    """See the module's docstring. One a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._to_ask: deque[tuple[str, AnyRef | None]] = deque()
        self._asked: dict[str, AnyRef | None] = {}
        self._lists_to_come = 0

    def on_receive(self, message: object) -> None:
        """One message."""
        afterlife = self._shard.afterlife
        if isinstance(message, m.Settled):
            if not (self._to_ask or self._asked or self._lists_to_come):
                afterlife.settled(message.sent)
        elif isinstance(message, m.TailLost):
            partition = message.partition
            told = "Redis has lost acknowledged writes of partition %d: comparing its rows"
            say(logger, "TailLost", told, partition, partition=partition)
            self._shard.observer(store_events.TailLost(partition))
            self._lists_to_come += 1
            self._shard.dispatcher.tell(message)
        elif isinstance(message, m.Living):
            self._lists_to_come -= 1
            self._to_ask.extend((execution_id, None) for execution_id in afterlife.of(message.partition))
            self._to_ask.extend(message.refs.items())
            self._ask()
        elif isinstance(message, m.Answered):
            self._answered(message)
        elif isinstance(message, m.PartitionLost):
            afterlife.partition_lost(message.partition)
        else:
            raise TypeError(f"{self} does not know what to do with {message!r}")

    def _ask(self) -> None:
        while self._to_ask and len(self._asked) < ASK_AT_ONCE:
            execution_id, ref = self._to_ask.popleft()
            if execution_id not in self._asked:
                self._asked[execution_id] = ref
                self._shard.mirror.send(self.actor_ref, ReadRev(execution_id))

    def _answered(self, message: m.Answered) -> None:
        request, reply, afterlife = message.request, message.reply, self._shard.afterlife
        if isinstance(request, Revive):
            if isinstance(reply, Committed):
                afterlife.restored(request.execution_id, self._shard.clock.monotonic())
                self._shard.observer(store_events.Healed(request.execution_id))
            else:
                # A row that is not older after all is left alone: then nothing was lost of it.
                afterlife.forget(request.execution_id)
            self._shard.dispatcher.tell(m.Revived(request.execution_id))
            return
        ref = self._asked.pop(request.execution_id, None)
        if isinstance(reply, Loaded):
            if ref is not None and ref.is_alive():
                ref.tell(m.StoredRev(stored_rev(reply.fields)))
            else:
                revive(self._shard, request.execution_id, reply.fields)
        self._ask()


def revive(shard: Shard, execution_id: str, fields: Mapping[str, bytes]) -> bool:
    """Send for the restoration of a row that is older than what is kept of its execution; False if it is not."""
    checkpoint = shard.afterlife.newer(execution_id, stored_rev(fields))
    if checkpoint is None:
        return False
    partition = shard.keys.partition_of(execution_id)
    lease = shard.holdings.lease(partition)
    if lease is None:
        return False
    shard.mirror.send(shard.healer, whole_row(Revive, shard, checkpoint, lease, checkpoint.rev))
    return True


def stored_rev(fields: Mapping[str, bytes]) -> int:
    """The revision in a row; -1 where there is none that can be read."""
    raw = fields.get("rev", b"")
    return int(raw) if raw.isdigit() else -1


def whole_row(kind: type[R], shard: Shard, cp: Checkpoint, lease: str, rev: int) -> R:
    """What writes the row as the checkpoint has it, as revision `rev`."""
    due, backoff = dues(cp)
    return kind(
        partition=shard.keys.partition_of(cp.execution_id),
        execution_id=cp.execution_id,
        lease=lease,
        rev=rev,
        commit_id=shard.commit_id(),
        now_ms=shard.clock.now_ms(),
        status=cp.status,
        live=score_of(due),
        fields=row.fields_of(cp),
        flow=cp.meta.flow,
        backoff=score_of(backoff),
        place=place_of(cp),
        attributes=cp.meta.attributes,
        errors_before=[*PARK_REASONS, *(failure.type for failure in cp.failures)],
        ended=cp.terminal,
    )
