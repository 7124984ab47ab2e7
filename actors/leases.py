"""Leases: acquires, renews, hands over and gives back partitions, keeps the clock, and says that the shard lives.

It runs on a thread of its own that nothing else can hold up: a lease that lapses while we still act would be the
end of every promise. What we may do counts from the *sending* of the last good renewal. Between renewals it looks
who else is there: what is wanted and free is taken, what another one should have is handed over.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.handover import Handovers
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.membership import Membership, Owner
from stepwell.actors.mirror import Mirror
from stepwell.actors.seqs import SeqBook
from stepwell.actors.store_events import StoreObserver
from stepwell.core.errors import StoreError, StoreUnreachable
from stepwell.core.partition import ranges
from stepwell.core.spells import CALM_SECONDS, Begin, Spells
from stepwell.metrics.saying import Kind, say
from stepwell.store.leases import TTL_MS, Grant, Held, LeaseStore, Renewed, Unanswered, parse_lease
from stepwell.store.link import StoreRefused
from stepwell.store.troubles import kind_of

logger = logging.getLogger("stepwell.leases")
RENEW_SECONDS = 3.0
MARGIN_SECONDS = 1.0
RETRY_SECONDS = 0.5
LOOK_SECONDS = 0.5
EAGER_SECONDS = 0.1
EAGER_FOR_SECONDS = 3.0


class SyncedClock(Protocol):
    """A clock that follows the server's."""

    def monotonic(self) -> float:
        """Seconds that never step."""
        ...

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        """Take over the server's time."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a lease is good for, how often it is renewed, and how often we look who else is there."""

    ttl_ms: int = TTL_MS
    renew_seconds: float = RENEW_SECONDS
    look_seconds: float = LOOK_SECONDS
    eager_seconds: float = EAGER_SECONDS


class Leases:
    """One round of `run_once` renews what is ours, acquires what is wanted and free, and tells who must know.

    `on_tick` gets the server's time (ms) as it was in this round; `on_trouble` hears of a round that failed.
    """

    def __init__(
        self,
        store: LeaseStore,
        owner: Owner,
        holdings: Holdings,
        clock: SyncedClock,
        membership: Membership,
        observer: StoreObserver,
        on_tick: Callable[[int], None],
        on_trouble: Callable[[], None],
        pace: Pace | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._holdings = holdings
        self._clock = clock
        self._membership = membership
        self._observer = observer
        self._on_tick = on_tick
        self._on_trouble = on_trouble
        self._pace = pace or Pace()
        self._wake = threading.Event()
        self._lock = threading.Lock()  # what is held changes, or may not change any more
        self._released = False
        self._suspects: set[int] = set()
        self._due = 0.0
        self._look_due = 0.0
        self._eager_until = 0.0
        self._retry_at = 0.0  # after a failed round: nobody may hurry it
        self._failing_since: float | None = None
        self._spells = Spells()
        self._handovers = Handovers()
        self._turn = 0  # tells the handovers of a partition apart
        self._turns: dict[int, int] = {}
        self._quiet: deque[tuple[int, int]] = deque()  # (partition, turn), as the dispatcher found
        self._unreleased: list[Grant] = []  # given up here, but Redis has not said so yet
        self._given_up: dict[int, int] = {}  # the epoch of the last grant of a partition that was
        self._hands_over = True
        self._holds_on = False
        self._hand_over_from = 0.0
        self._missed = False
        self._untaken = ""
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
        soon = 0.0 if self._suspects or self._quiet else min(self._due, self._look_due)
        return max(self._retry_at, soon)

    def hurry(self) -> None:
        """Somebody can't reach the server, or a shard's death is known: look now, and not when the next round is due
        (but for one that failed: it keeps its pause)."""
        self._due = 0.0
        self._wake.set()

    def recheck(self, partition: int) -> None:
        """A write was fenced: find out now whether the partition is still ours."""
        self._suspects.add(partition)
        self._wake.set()

    def leave(self, hand_over: bool) -> None:
        """Take nothing any more. `hand_over`: release each partition as soon as it is quiet, however long that takes;
        what becomes of the rest in the end is up to the caller."""
        self._hand_over_from = math.inf
        self._hands_over = hand_over
        self._membership.leave()
        self.hurry()

    @property
    def has_heirs(self) -> bool:
        """Whether a shard of another worker lives that would take over, as far as is known."""
        return bool(self._membership.heirs)

    @property
    def outdated(self) -> bool:
        """Whether shards of a newer version are active, which own the partitions."""
        return self._membership.outdated

    @property
    def stands_by(self) -> bool:
        """Whether there is nothing for this shard: more shards than partitions, or newer ones; and it stays."""
        nothing = not self._membership.wanted and not self._holdings.partitions()
        return nothing and not self._membership.leaving

    @property
    def seconds_in_trouble(self) -> float:
        """For how long no round has succeeded; 0 if the last one did."""
        since = self._failing_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def run_once(self) -> None:
        """Wait until something is due, then do it."""
        wait = self.next_at - self._clock.monotonic()
        if wait > 0:
            self._wake.wait(wait)
        self._wake.clear()
        now = self._clock.monotonic()
        if now < self.next_at:
            return
        if self._suspects or now >= self._due:
            self.round()
        else:
            self.look()

    def round(self) -> None:
        """Renew, look, and say that we live."""
        if self._guarded(self._whole_round):
            self._due = self._clock.monotonic() + (RETRY_SECONDS if self._missed else self._pace.renew_seconds)

    def look(self) -> None:
        """See who is there, and take or give what follows from that."""
        self._guarded(self._look)

    def hold_on(self) -> None:
        """Hand nothing over any more: what is about to be cut off would look quiet, and it is for `release` to say what
        is. From any thread."""
        with self._lock:
            self._holds_on = True

    def release(self, unquiet: Collection[int] = ()) -> None:
        """Give everything back, remembering that nothing was interrupted. A round that is still under way on another
        thread takes nothing any more; what it is granted goes back at once.

        `unquiet`: partitions of which bodies run that nobody waits for. Those leases stay until the end of the process
        was looked into, or they lapse: so what is interrupted counts, and nobody runs it beside them before.
        """
        with self._lock:
            self._released = True
            grants = self._holdings.grants()
            for grant in grants:
                self._holdings.drop(grant.partition)
        kept = [grant for grant in grants if grant.partition in unquiet]
        self._give_back([*self._unreleased, *(grant for grant in grants if grant not in kept)])
        if kept:  # our entry says that somebody looks into our end
            self._membership.leave()
            self._membership.beat(self._store.server_time_ms())
        else:
            self._membership.gone()

    def _guarded(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except StoreError as error:
            if self._released:
                return False
            now = self._clock.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            self._tell_trouble(error, now)
            self._due = self._retry_at = now + RETRY_SECONDS
            self._observer(store_events.StoreTrouble("leases", kind_of(error), str(error)))
            self._on_trouble()
            return False
        lasted = self._spells.works(self._clock.monotonic())
        if lasted is not None:
            told, seconds = "leases are renewed again, after %.1f s", round(lasted, 3)
            say(logger, "StoreTrouble", told, lasted, level=logging.INFO, part="leases", duration_s=seconds)
        self._failing_since = None
        self._retry_at = 0.0
        return True

    def _tell_trouble(self, error: StoreError, now: float) -> None:
        begin = self._spells.fails(now)
        told = "leases can't be renewed (%s); trying again every %g s"
        if begin is Begin.NEW:
            say(logger, "StoreTrouble", told, error, RETRY_SECONDS, part="leases", kind=kind_of(error))
        elif begin is Begin.RESTLESS:
            told += "; this comes and goes: told next when it is over for %g s"
            say(logger, "StoreTrouble", told, error, RETRY_SECONDS, CALM_SECONDS, part="leases", kind=kind_of(error))

    def _whole_round(self) -> None:
        server_ms = self._sync_clock()
        self._renew()
        self._look()
        if not self._released:
            self._membership.beat(server_ms)
            if self._hand_over_from == math.inf:
                # The heirs have to know before anything is free, or it would lie about until they do.
                self._hand_over_from = self._clock.monotonic() + (self._pace.look_seconds if self.has_heirs else 0.0)
                self._look_due = self._hand_over_from
            self._on_tick(server_ms)

    def _look(self) -> None:
        now = self._clock.monotonic()
        self._release_quiet()
        if self._membership.look():
            self._eager_until = now + EAGER_FOR_SECONDS
        waits = self._acquire()
        self._check_recovered()
        due = now + (self._pace.eager_seconds if waits and now < self._eager_until else self._pace.look_seconds)
        self._look_due = min(due, self._hand_over(now))

    def _sync_clock(self) -> int:
        sent = self._clock.monotonic()
        server_ms = self._store.server_time_ms()
        self._clock.sync(server_ms, sent, self._clock.monotonic())
        return server_ms

    def _until(self, sent: float) -> float:
        return sent + self._pace.ttl_ms / 1000 - MARGIN_SECONDS

    # What is ours.

    def _renew(self) -> None:
        grants = self._holdings.grants()
        known = [self.seqs.known(grant.partition) for grant in grants]
        sent = self._clock.monotonic()
        answers = self._store.renew(grants, self._pace.ttl_ms) if grants else []
        complete = True
        missed: Unanswered | None = None
        retaken: list[int] = []
        lost: dict[str, list[int]] = {}
        for grant, answer, seq in zip(grants, answers, known, strict=True):
            suspected = grant.partition in self._suspects
            if isinstance(answer, Renewed):
                self._holdings.extend(grant.partition, self._until(sent))
                complete = self.seqs.renewed(grant.partition, answer.seq, seq) and complete
                if answer.retaken:
                    retaken.append(grant.partition)
                if suspected:
                    self._observer(store_events.Fenced(grant.partition, lost=False))
                if suspected or answer.retaken:
                    self._checked(grant.partition)
            elif isinstance(answer, Unanswered):
                missed = answer
            elif not self._released:
                lost.setdefault(answer.holder.split("|")[0] or "nobody", []).append(grant.partition)
                self._lose(grant.partition)
        if complete and grants and not missed:
            self.on_settled(sent)
        for holder, partitions in lost.items():
            told = f"{holder} holds what is not ours any more:"
            _tell_of("PartitionGone", told, partitions, logging.WARNING, reason="lost", holder=holder)
        if retaken:
            told = "leases had lapsed or were lost, nobody else had taken them: ours again in"
            _tell_of("PartitionGained", told, retaken, reason="taken again")
        self._note_missed(missed)
        for partition in list(self._suspects):
            self._checked(partition)

    def _note_missed(self, missed: Unanswered | None) -> None:
        """A part of the store does not answer: the leases there lapse if it stays so, the others don't."""
        if missed is not None and not self._missed:
            told = "some leases can't be renewed (%s); trying again every %g s"
            say(logger, "StoreTrouble", told, missed.reason, RETRY_SECONDS, part="leases", kind=missed.kind)
        self._missed = missed is not None

    def _checked(self, partition: int) -> None:
        self._suspects.discard(partition)
        self.mirror.lease_checked(partition, self._holdings.lease(partition))

    def _lose(self, partition: int) -> None:
        self._let_go(partition)
        self._observer(store_events.Fenced(partition, lost=True))
        self._observer(store_events.PartitionGone(partition, "lost"))
        self._checked(partition)

    def _let_go(self, partition: int) -> None:
        self._holdings.drop(partition)
        self._handovers.forget(partition)
        self._turns.pop(partition, None)
        self.on_lost(partition)
        self.dispatcher.tell(m.PartitionLost(partition))

    def _check_recovered(self) -> None:
        """Has all been seen to that an earlier owner's end may have interrupted? Ask."""
        unrecovered = self._holdings.unrecovered()
        if unrecovered:
            self.dispatcher.tell(m.CheckRecovered(unrecovered))

    # What should be ours.

    def _acquire(self) -> bool:
        """Take what is wanted and free; whether something wanted is left to wait for."""
        missing = sorted(self._membership.wanted - {*self._holdings.partitions(), *self._going})
        if not missing or self._released:
            return False
        sent = self._clock.monotonic()
        held = self._take(missing, sent)
        freed = [h.partition for h in held if self._held_by_dead(h) and self._store.free(h.partition, h.value)]
        if freed:
            self._take(freed, sent, dead=True)
        return len(held) > len(freed)

    def _take(self, partitions: list[int], sent: float, dead: bool = False) -> list[Held]:
        """Ask for them; `dead`: their owners were found to be dead. Those that others hold."""
        owner = self._owner
        answers = self._store.acquire(partitions, owner.name, owner.incarnation, owner.host_info, self._pace.ttl_ms)
        granted = [answer for answer in answers if isinstance(answer, Grant)]
        grants = [grant for grant in granted if grant.epoch > self._given_up.get(grant.partition, 0)]
        # Redis has forgotten that the others were given back. Somebody may have gone on from there: never take up the
        # old grant again, but give it back once more.
        self._unreleased += [grant for grant in granted if grant.epoch <= self._given_up.get(grant.partition, 0)]
        untaken = next((answer for answer in answers if isinstance(answer, Unanswered)), None)
        if untaken is not None and untaken.reason != self._untaken:
            told = "some partitions can't be taken (%s); trying again"
            say(logger, "StoreTrouble", told, untaken.reason, part="leases", kind=untaken.kind)
        self._untaken = "" if untaken is None else untaken.reason
        with self._lock:
            too_late = self._released
            for grant in () if too_late else grants:
                self._holdings.hold(grant, self._until(sent))
                self.seqs.granted(grant.partition, grant.seq)
                self.on_gained(grant)
                self._observer(store_events.PartitionGained(grant.partition, _cause(grant, dead)))
        if grants and not too_late:
            causes = ",".join(sorted({_cause(grant, dead) for grant in grants} - {""})) or None
            _tell_of("PartitionGained", "took", [grant.partition for grant in grants], cause=causes)
        if too_late and grants:
            self._give_back(grants)
        return [answer for answer in answers if isinstance(answer, Held)]

    def _held_by_dead(self, held: Held) -> bool:
        holder = parse_lease(held.value)
        return holder is not None and self._membership.may_free(holder)

    # What should be another one's.

    def _hand_over(self, now: float) -> float:
        """Begin what is due, serve on what was not quiet in time; when there is something to do next."""
        if self._released or self._holds_on or not self._hands_over or now < self._hand_over_from:
            return math.inf
        held = [grant.partition for grant in self._holdings.grants() if grant.clean or self._may_pass_on(grant)]
        moves = self._handovers.plan(self._membership.unwanted(held), now, patient=self._membership.leaving)
        if moves.begin:
            logger.debug("partitions %s are handed over", moves.begin)
            self._turn += 1
            self._turns.update(dict.fromkeys(moves.begin, self._turn))
            for partition in moves.begin:
                self.on_lost(partition)
            self.dispatcher.tell(m.HandOver(moves.begin, partial(self._became_quiet, turn=self._turn)))
        if moves.resume:
            logger.debug("partitions %s are served on, as steps of them run", moves.resume)
            self.dispatcher.tell(m.ServeOn(moves.resume))
            for partition in moves.resume:
                self._turns.pop(partition, None)
                grant = self._holdings.grant(partition)
                if grant is not None:
                    self.on_gained(grant)
        return self._handovers.next_due()

    def _may_pass_on(self, grant: Grant) -> bool:
        """Also what is not recovered: where it waits for room here, another one may have it; and a newer version gets
        all, as it may be the only one that can recover it."""
        if self._membership.outdated:
            return True
        return grant.partition in self._holdings.standing or grant.partition in self._handovers

    def _became_quiet(self, partition: int, turn: int) -> None:
        """Called on the dispatcher's thread."""
        self._quiet.append((partition, turn))
        self._wake.set()

    def _release_quiet(self) -> None:
        given: list[int] = []
        while self._quiet:
            partition, turn = self._quiet.popleft()
            with self._lock:
                grant = None if self._holds_on else self._holdings.grant(partition)
                if grant is None or self._turns.get(partition) != turn:
                    continue
                self._given_up[partition] = grant.epoch
                self._unreleased.append(grant)
                self._let_go(partition)
            self._observer(store_events.PartitionGone(partition, "handed over"))
            given.append(partition)
        if given:
            _tell_of("PartitionGone", "handed over", given, reason="handed over")
        if self._unreleased:
            try:
                self._give_back(self._unreleased)
            except (StoreUnreachable, StoreRefused):
                return  # the next look tries again; one master that is away holds up nothing else meanwhile
            self._unreleased = []

    @property
    def _going(self) -> list[int]:
        """Partitions that can't be taken again before it is known that they are released."""
        return [grant.partition for grant in self._unreleased]

    def _give_back(self, grants: list[Grant]) -> None:
        """What an earlier owner's end may have interrupted, and nobody has seen to yet, is for the next one to see."""
        self._store.release([grant for grant in grants if grant.clean])
        self._store.pass_on([grant for grant in grants if not grant.clean])


def _cause(grant: Grant, dead: bool) -> Literal["", "boxed", "dead", "lapsed"]:
    if grant.clean:
        return ""
    return "boxed" if grant.boxed else "dead" if dead else "lapsed"


def _tell_of(
    kind: Kind,
    what: str,
    partitions: list[int],
    level: int = logging.INFO,
    *,
    reason: str | None = None,
    cause: str | None = None,
    holder: str | None = None,
) -> None:
    """One line, however many partitions."""
    count = len(partitions)
    say(
        logger,
        kind,
        "%s %d partition%s",
        what,
        count,
        "" if count == 1 else "s",
        level=level,
        partitions=count,
        which=ranges(partitions),
        reason=reason,
        cause=cause,
        holder=holder,
    )
