"""The Mirror: group commit. One pipeline is in flight; what arrives meanwhile is the next.

It repeats a batch whose replies were lost: every script recognises what it has done before. What the server
refuses for now (full, read-only, loading) waits and is sent again; what a lease fenced waits until Leases has
found out whether the partition is still ours.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND, NO_FAILPOINTS, Failpoints
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import Answered, Drop, LetterAnswered, RowRead, Written
from stepwell.actors.store_events import BatchWritten, NotSafeYet, StoreObserver, StoreTrouble
from stepwell.core.spells import CALM_SECONDS, Begin, Spells
from stepwell.metrics.saying import Kind, say
from stepwell.store.link import LinkDown, NotDurable
from stepwell.store.replies import UNREACHABLE, Committed, Fenced, Refused, Reply
from stepwell.store.requests import Commit, DeadLetter, Forget, Load, ReadRev, Restore, Revive, Unlist
from stepwell.store.troubles import kind_of, kind_of_refusal

logger = logging.getLogger("stepwell.mirror")
BATCH_REQUESTS_MAX = 256
BATCH_BYTES_MAX = 4 * 1024 * 1024
IDLE_SECONDS = 0.5
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
TOLD_EACH = 300  # tries, of which the first ones come soon: when it begins, and about every five minutes while it lasts

_ROWS = (Commit, Restore)  # a tuple is checked in half the time of a union

Write = Commit | Restore | DeadLetter | Unlist | Forget
Asked = Write | Load | ReadRev
Order = tuple[AnyRef | None, Asked]
FencedOrder = tuple[AnyRef | None, Write]


class Sender(Protocol):
    """What sends a batch: `stepwell.store.link.Link`."""

    def execute(self, requests: list[Asked]) -> list[Reply]:
        """One reply per request; raises LinkDown when the fate of all is unknown."""
        ...


class Mirror:
    """Sends requests of actors in batches and tells each its reply. `run_once` is one round of its thread.

    `written` hears of each batch how its partitions count the writes that were acknowledged.
    """

    def __init__(
        self,
        link: Sender,
        pause: Callable[[float], object],
        monotonic: Callable[[], float],
        observer: StoreObserver,
        on_fenced: Callable[[int], None],
        failpoints: Failpoints = NO_FAILPOINTS,
        written: Callable[[Iterable[tuple[int, int, bool]]], None] = lambda counts: None,
    ) -> None:
        self._link = link
        self._pause = pause
        self._monotonic = monotonic
        self._observer = observer
        self._on_fenced = on_fenced
        self._failpoints = failpoints
        self._written = written
        self._queue: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._again: list[Order] = []
        self._again_at = 0.0
        self._fenced: dict[int, list[FencedOrder]] = {}
        self._fence_lock = threading.Lock()
        self._troubles = 0
        self._spells = Spells()
        self.busy = False

    def send(self, ref: AnyRef | None, request: Asked) -> None:
        """Queue a request; its reply comes to `ref` as `Written`, `RowRead` for a load, `LetterAnswered` for a dead
        letter, `Answered` for the healer's."""
        self._queue.put((ref, request))

    def wake(self) -> None:
        """Let a waiting round end."""
        self._queue.put(None)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or in flight; fenced requests don't count."""
        return not self.busy and not self._again and self._queue.empty()

    @property
    def waiting(self) -> int:
        """How many requests wait to be sent, or sent again."""
        return self._queue.qsize() + len(self._again)

    def lease_checked(self, partition: int, lease: str | None) -> None:
        """Leases has looked: what was fenced under the lease that is ours (None: none is) is sent again. What was under
        an earlier one never will be, and whoever waits for that is told: nobody else may know of it any more, as of
        one that was granted to leave when a timer of it fired. Called on Leases' thread."""
        with self._fence_lock:
            held = self._fenced.pop(partition, [])
        for order in held:
            ref, request = order
            if request.lease == lease:
                self._queue.put(order)
            elif type(request) in _ROWS and ref is not None and ref.is_alive():  # the healer hears of all that is lost
                ref.tell(Drop())

    def run_once(self, wait: float = IDLE_SECONDS) -> None:
        """Send one batch; wait at most `wait` seconds for something to send."""
        batch = self._take(wait)
        if not batch:
            if self._spells.lasts and not self._again:
                self._tell_end()
            return
        self.busy = True
        try:
            self._send(batch)
        finally:
            self.busy = False

    def _take(self, wait: float) -> list[Order]:
        batch = self._take_again()
        size = 0
        try:
            if not batch:
                wait = min(wait, self._again_at - self._monotonic()) if self._again else wait
                order = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
                if order is None:
                    return []
                batch.append(order)
                size += _size(order[1])
            while len(batch) < BATCH_REQUESTS_MAX and size < BATCH_BYTES_MAX:
                order = self._queue.get_nowait()
                if order is not None:
                    batch.append(order)
                    size += _size(order[1])
        except queue.Empty:
            pass  # the batch is what there is
        return batch

    def _take_again(self) -> list[Order]:
        """What is due to be sent again, but no more than half a batch: it must not crowd out what is new."""
        if not self._again or self._monotonic() < self._again_at:
            return []
        half = max(1, BATCH_REQUESTS_MAX // 2)
        batch, self._again = self._again[:half], self._again[half:]
        return batch

    def _send(self, batch: list[Order]) -> None:
        began = self._monotonic()
        requests = [request for _, request in batch]
        if self._failpoints.active:
            self._reach(BEFORE_SEND, batch)
        try:
            replies = self._link.execute(requests)
        except LinkDown as error:
            # What is executed and not safe is no trouble of the connection, but is sent again all the same.
            trouble = StoreTrouble("mirror", kind_of(error), str(error))
            event = NotSafeYet() if isinstance(error, NotDurable) else trouble
            self._trouble(batch, str(error), event)
            return
        if self._failpoints.active:
            self._reach(AFTER_REPLY, batch)
        self._written(
            [
                (request.partition, reply.seq, reply.dup)
                for (_, request), reply in zip(batch, replies, strict=True)
                if type(reply) is Committed and reply.seq and isinstance(request, _ROWS)
            ]
        )
        refused: list[Order] = []
        reason = kind = ""
        partly = False
        for order, reply in zip(batch, replies, strict=True):
            ref, request = order
            if type(reply) is Committed and type(request) is Commit:
                if ref is not None:
                    ref.tell(Written(reply))
            elif isinstance(reply, Refused):
                refused.append(order)
                reason, kind = reply.reason, reply.kind
                partly |= reply.kind == UNREACHABLE
            elif isinstance(reply, Fenced) and not isinstance(request, Load | ReadRev):
                with self._fence_lock:
                    self._fenced.setdefault(request.partition, []).append((ref, request))
                self._on_fenced(request.partition)
            elif ref is not None:
                if isinstance(request, Load):
                    ref.tell(RowRead(request.execution_id, reply))
                elif isinstance(request, ReadRev | Revive):
                    ref.tell(Answered(request, reply))
                elif isinstance(request, DeadLetter):
                    ref.tell(LetterAnswered(request, reply))
                else:
                    ref.tell(Written(reply))
        self._observer(BatchWritten(requests, replies, self._monotonic() - began))
        if refused:
            self._trouble(refused, reason, StoreTrouble("mirror", kind_of_refusal(kind), reason), partly)
        elif not self._again:
            self._troubles = 0
            if self._spells.lasts:
                self._tell_end()

    def _tell_end(self) -> None:
        lasted = self._spells.works(self._monotonic())
        if lasted is not None:
            told, seconds = "Redis acknowledges writes again, after %.1f s", round(lasted, 3)
            say(logger, "StoreTrouble", told, lasted, level=logging.INFO, part="mirror", duration_s=seconds)

    def _reach(self, failpoint: str, batch: list[Order]) -> None:
        for _, request in batch:
            if isinstance(request, _ROWS):
                self._failpoints.reached(failpoint)

    def _trouble(self, batch: list[Order], reason: str, event: StoreTrouble | NotSafeYet, partly: bool = False) -> None:
        """Keep the batch in order, to be sent again after a growing pause.

        Where only a part of the store is away (`partly`: a master of a cluster), what is new need not wait so long.
        """
        self._again += batch
        for _, request in batch:
            if isinstance(request, DeadLetter):
                request.repeated = True
        seconds = RETRY_SECONDS[min(self._troubles, len(RETRY_SECONDS) - 1)]
        begin = self._spells.fails(self._monotonic())
        if begin is not Begin.KNOWN or (self._troubles and self._troubles % TOLD_EACH == 0):
            told = "Redis does not acknowledge writes (%s); %d wait, nothing is lost, trying again in %.2g s"
            if begin is Begin.RESTLESS:
                told += f"; this comes and goes: told next when it is over for {CALM_SECONDS:g} s"
            what: Kind = "StoreTrouble" if isinstance(event, StoreTrouble) else "NotSafeYet"
            kind = event.kind if isinstance(event, StoreTrouble) else None
            say(logger, what, told, reason, len(batch), seconds, part="mirror", kind=kind, error=reason)
        self._troubles += 1
        self._observer(event)
        if partly:
            self._again_at = self._monotonic() + seconds
        else:
            self._again_at = 0.0
            self._pause(seconds)


def _size(request: Asked) -> int:
    if type(request) is Commit:
        size = 300
        for _, value in request.sets:
            size += len(value)
        return size
    if isinstance(request, Restore):
        return 300 + sum([len(value) for _, value in request.fields])
    return 300
