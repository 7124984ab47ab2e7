"""Leases: acquires, renews and gives back partitions, keeps the clock, and says that the worker lives.

It runs on a thread of its own that nothing else can hold up: a lease that lapses while we still act would be the
end of every promise. What we may do counts from the *sending* of the last good renewal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.mirror import Mirror
from stepwell.actors.seqs import SeqBook
from stepwell.actors.store_events import StoreObserver
from stepwell.core.errors import StoreError
from stepwell.store.leases import Grant, Held, LeaseStore, Renewed, parse_lease

logger = logging.getLogger("stepwell.leases")
TTL_MS = 10_000
RENEW_SECONDS = 3.0
MARGIN_SECONDS = 1.0
RETRY_SECONDS = 0.5


class SyncedClock(Protocol):
    """A clock that follows the server's."""

    def monotonic(self) -> float:
        """Seconds that never step."""
        ...

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        """Take over the server's time."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asks for leases; `host_info` is `host,boot,pid,start`."""

    name: str
    incarnation: str
    host_info: str


class Leases:
    """One round of `run_once` acquires what is free, renews what is ours, and tells who must know.

    `on_tick` gets the server's time (ms) as it was in this round; `on_trouble` hears of a round that failed.
    """

    def __init__(
        self,
        store: LeaseStore,
        owner: Owner,
        holdings: Holdings,
        clock: SyncedClock,
        partitions: int,
        observer: StoreObserver,
        is_dead: Callable[[str], bool],
        on_tick: Callable[[int], None],
        on_trouble: Callable[[], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._holdings = holdings
        self._clock = clock
        self._wanted = range(partitions)
        self._observer = observer
        self._is_dead = is_dead
        self._on_tick = on_tick
        self._on_trouble = on_trouble
        self._wake = threading.Event()
        self._lock = threading.Lock()  # what is held changes, or may not change any more
        self._released = False
        self._suspects: set[int] = set()
        self._due = 0.0
        self._retry_at = 0.0  # after a failed round: nobody may hurry it
        self._warned = False
        self.mirror: Mirror
        self.dispatcher: AnyRef
        self.seqs = SeqBook(lambda partition: None)
        self.on_settled: Callable[[float], None] = lambda sent: None
        self.on_gained: Callable[[Grant], None]
        self.on_lost: Callable[[int], None]

    def wake(self) -> None:
        """Let a waiting round end."""
        self._wake.set()

    @property
    def next_at(self) -> float:
        """The monotonic second from which on there is something to do."""
        return max(self._retry_at, 0.0 if self._suspects else self._due)

    def hurry(self) -> None:
        """Somebody can't reach the server: look now, and not when the next round is due (but for one that failed: it
        keeps its pause)."""
        self._due = 0.0
        self._wake.set()

    def recheck(self, partition: int) -> None:
        """A write was fenced: find out now whether the partition is still ours."""
        self._suspects.add(partition)
        self._wake.set()

    def run_once(self) -> None:
        """Wait until something is due, then do it."""
        wait = self.next_at - self._clock.monotonic()
        if wait > 0:
            self._wake.wait(wait)
        self._wake.clear()
        if self._clock.monotonic() >= self.next_at:
            self.round()

    def round(self) -> None:
        """Acquire and renew once."""
        try:
            server_ms = self._sync_clock()
            self._renew()
            self._acquire()
            if not self._released:
                self._on_tick(server_ms)
        except StoreError as error:
            if self._released:
                return
            if not self._warned:
                logger.warning("leases can't be renewed (%s); trying again every %g s", error, RETRY_SECONDS)
            self._warned = True
            self._due = self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            self._on_trouble()
            return
        self._warned = False
        self._retry_at = 0.0
        self._due = self._clock.monotonic() + RENEW_SECONDS

    def release(self) -> None:
        """Give everything back, remembering that nothing was interrupted. A round that is still under way on another
        thread takes nothing any more; what it is granted goes back at once."""
        with self._lock:
            self._released = True
            grants = self._holdings.grants()
            for grant in grants:
                self._holdings.drop(grant.partition)
        if grants:
            self._store.release(grants)

    def _sync_clock(self) -> int:
        sent = self._clock.monotonic()
        server_ms = self._store.server_time_ms()
        self._clock.sync(server_ms, sent, self._clock.monotonic())
        return server_ms

    def _until(self, sent: float) -> float:
        return sent + TTL_MS / 1000 - MARGIN_SECONDS

    def _renew(self) -> None:
        grants = self._holdings.grants()
        known = [self.seqs.known(grant.partition) for grant in grants]
        sent = self._clock.monotonic()
        answers = self._store.renew(grants, TTL_MS) if grants else []
        complete = True
        for grant, answer, seq in zip(grants, answers, known, strict=True):
            suspected = grant.partition in self._suspects
            if isinstance(answer, Renewed):
                self._holdings.extend(grant.partition, self._until(sent))
                complete = self.seqs.renewed(grant.partition, answer.seq, seq) and complete
                if suspected or answer.retaken:
                    self._observer(store_events.Fenced(grant.partition, lost=False))
                    self._checked(grant.partition)
            elif not self._released:
                self._lose(grant.partition, answer.holder)
        if complete and grants:
            self.on_settled(sent)
        for partition in list(self._suspects):
            self._checked(partition)

    def _checked(self, partition: int) -> None:
        self._suspects.discard(partition)
        self.mirror.lease_checked(partition, self._holdings.lease(partition))

    def _lose(self, partition: int, holder: str) -> None:
        logger.warning("partition %d is not ours any more (holder: %s)", partition, holder.split("|")[0] or "nobody")
        self._holdings.drop(partition)
        self._observer(store_events.Fenced(partition, lost=True))
        self.on_lost(partition)
        self.dispatcher.tell(m.PartitionLost(partition))
        self._checked(partition)

    def _acquire(self) -> None:
        missing = [p for p in self._wanted if self._holdings.lease(p) is None]
        if not missing or self._released:
            return
        sent = self._clock.monotonic()
        held = self._take(missing, sent)
        freed = [h.partition for h in held if self._held_by_dead(h) and self._store.free(h.partition, h.value)]
        if freed:
            logger.info("took over %d partitions from a dead process of this host", len(freed))
            self._take(freed, sent)

    def _take(self, partitions: list[int], sent: float) -> list[Held]:
        owner = self._owner
        answers = self._store.acquire(partitions, owner.name, owner.incarnation, owner.host_info, TTL_MS)
        grants = [answer for answer in answers if isinstance(answer, Grant)]
        with self._lock:
            too_late = self._released
            for grant in () if too_late else grants:
                self._holdings.hold(grant, self._until(sent))
                self.seqs.granted(grant.partition, grant.seq)
                self.on_gained(grant)
        if too_late and grants:
            self._store.release(grants)
        return [answer for answer in answers if isinstance(answer, Held)]

    def _held_by_dead(self, held: Held) -> bool:
        holder = parse_lease(held.value)
        return holder is not None and self._is_dead(holder.host_info)
