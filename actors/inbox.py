"""The InboxReader: reads the inboxes of owned partitions, recovers what a partition had when it became ours, brings
back what falls due, and sweeps.

Reading changes nothing, so it may be repeated at will: after every broken connection all is read again from the
beginning (an entry may have come with a smaller id), and whoever has it already skips it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

from stepwell.actors import store_events
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import CountStarts, InboxRead, Listed, LookAround, Recover, Recovering, Swept
from stepwell.actors.store_events import StoreObserver
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError
from stepwell.core.limits import WAKE_AHEAD_SECONDS
from stepwell.metrics.saying import say
from stepwell.store.inbox import START, Entry, InboxStore
from stepwell.store.link import LinkDown
from stepwell.store.replies import order
from stepwell.store.troubles import kind_of

logger = logging.getLogger("stepwell.inbox")
READ_COUNT = 500
BLOCK_MS = 500
LOOK_SECONDS = 1.0
CHUNK = 500
PARTITIONS_AT_ONCE = 8
CLOCK_SLACK_MS = 1000
SWEEP_SECONDS = 5.0
SWEEP_MAX = 1000
OVERDUE_MS = 5000
PAUSE_SECONDS = 0.2
TAKE_OVER_SECONDS = 0.5
BEGUN_MAX = 20


class InboxReader:
    """One round of `run_once` is one read over all owned partitions; every second also a look at what falls due, every
    5 s a sweep."""

    def __init__(
        self,
        store: InboxStore,
        holdings: Holdings,
        clock: Clock,
        pause: Callable[[float], object],
        on_trouble: Callable[[], None],
        observer: StoreObserver,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._clock = clock
        self._pause = pause
        self._on_trouble = on_trouble
        self._observer = observer
        self._after: dict[int, str] = {}
        self._changes: deque[tuple[int, bool]] = deque()  # (partition, gained) as Leases found out
        self._known_until: dict[int, float] = {}  # by partition: what is due (ms) until then is the dispatcher's
        self._take_over_at = 0.0
        self._look_due = 0.0
        self._sweep_due = 0.0
        self._lying_before: set[tuple[int, str]] = set()
        self._due_before: set[str] = set()
        self._warned = False
        self._unreadable: frozenset[int] = frozenset()
        self._counted = False  # something was owned at the last count
        self._counted_at = clock.monotonic()
        self._recount = False  # what is owned has changed since
        self.dispatcher: AnyRef

    def gained(self, partition: int) -> None:
        """A partition has become ours."""
        self._changes.append((partition, True))

    def lost(self, partition: int) -> None:
        """A partition is no longer ours."""
        self._changes.append((partition, False))

    @property
    def counted_ago(self) -> float:
        """Seconds since what lies in owned partitions was counted. From any thread."""
        return self._clock.monotonic() - self._counted_at

    def run_once(self, block_ms: int | None = BLOCK_MS) -> None:
        """One round."""
        try:
            fresh = self._take_changes()
            if fresh and self._clock.monotonic() < self._take_over_at:
                self._put_back(fresh)
            elif fresh:
                self._take_over(fresh)
            if not self._after:
                self._count()
                self._pause(PAUSE_SECONDS)
                return
            self._read(self._after, block_ms)
            if self._clock.monotonic() >= self._look_due:
                self._look_ahead()
            if self._clock.monotonic() >= self._sweep_due:
                self._sweep()
            if self._warned and not self._changes:
                say(logger, "StoreTrouble", "inboxes are read again", level=logging.INFO, part="inbox")
                self._warned = False
        except StoreError as error:
            if not self._warned:
                told = "inboxes can't be read (%s); trying again"
                say(logger, "StoreTrouble", told, error, part="inbox", kind=kind_of(error))
            self._warned = True
            self._observer(store_events.StoreTrouble("inbox", kind_of(error), str(error)))
            self._on_trouble()
            self._after = dict.fromkeys(self._after, START)
            self._pause(PAUSE_SECONDS)

    @property
    def _answering(self) -> list[int]:
        """What we own but for partitions of a cluster's master that is away: they hold up nothing of the others."""
        away = self._store.away
        return [partition for partition in self._after if partition not in away]

    def _take_changes(self) -> list[int]:
        fresh: list[int] = []
        while self._changes:
            partition, gained = self._changes.popleft()
            if self._after.pop(partition, None) is not None:
                self._recount = True
            self._known_until.pop(partition, None)
            fresh = [each for each in fresh if each != partition]
            if gained:
                fresh.append(partition)
        return fresh

    def _take_over(self, partitions: list[int]) -> None:
        """Doorbells first, so that what is queued is known as such; then what is unfinished and due. Partitions whose
        master is away are put back, and hold up no other."""
        self.dispatcher.tell(Recovering(True))
        leases = {partition: self._holdings.lease(partition) or "" for partition in partitions}
        left = partitions
        try:
            starts = dict.fromkeys(partitions, START)
            while self._read(starts, None):
                pass
            away = [partition for partition in partitions if partition in self._store.away]
            left = [partition for partition in partitions if partition not in away] + away
            while len(left) > len(away):
                chunk = left[: min(PARTITIONS_AT_ONCE, len(left) - len(away))]
                self._recover(chunk)
                for partition in chunk:
                    self.dispatcher.tell(Listed(partition, leases[partition]))
                    self._after[partition] = starts[partition]
                left = left[len(chunk) :]
                self._recount = True
                self._sweep_due = self._clock.monotonic() + SWEEP_SECONDS
            if away:
                self._try_later(away)
                self._tell_late(away, "their master is away", "cluster")
        except StoreError as error:
            self._try_later(left[PARTITIONS_AT_ONCE:] + left[:PARTITIONS_AT_ONCE])  # whoever failed comes last
            if not self._after or (isinstance(error, LinkDown) and not self._store.clustered):
                raise  # the connection is that of all others, too: they are read again from the beginning
            self._tell_late(left, str(error), kind_of(error))
        finally:
            self.dispatcher.tell(Recovering(False))

    def _try_later(self, gained: list[int]) -> None:
        """What is read already need not wait for them: in a cluster their master may be away."""
        self._put_back(gained)
        if self._after:
            self._take_over_at = self._clock.monotonic() + TAKE_OVER_SECONDS

    def _tell_late(self, partitions: list[int], why: str, kind: str) -> None:
        """Partitions can't be taken over yet, while others are read: it is logged once."""
        self._observer(store_events.StoreTrouble("inbox", kind, why))
        if not self._warned:
            told = "partitions that can't be taken over yet: %d (%s); trying again"
            say(logger, "StoreTrouble", told, len(partitions), why, part="inbox", kind=kind)
            self._on_trouble()
        self._warned = True

    def _put_back(self, gained: list[int]) -> None:
        """In this order, before what Leases has found out meanwhile: some may be lost again."""
        self._changes.extendleft((partition, True) for partition in reversed(gained))

    def _recover(self, partitions: list[int]) -> None:
        """What is due now or in a moment. What is parked is looked at too: it may have waited for a flow that is known
        here. After the server's clock was set back due times can't be relied on: then everything is brought back, and
        each execution makes its own right."""
        now = self._clock.now_ms()
        for partition, latest in zip(partitions, self._store.last_event_ms(partitions), strict=True):
            if latest > now + CLOCK_SLACK_MS:
                told = "the clock of Redis was set back: all that waits in partition %d is looked at"
                say(logger, "ClockSetBack", told, partition, partition=partition)
                for chunk in self._store.unfinished(partition):
                    self.dispatcher.tell(Recover(partition, chunk))
        until = now + WAKE_AHEAD_SECONDS * 1000
        self._bring_back(dict.fromkeys(partitions, (-math.inf, until)))
        for partition, parked in zip(partitions, self._store.parked(partitions), strict=True):
            self._tell_of(partition, [(execution_id, math.inf) for execution_id in parked])
            self.dispatcher.tell(Recover(partition, []))  # also of a partition where nobody is due it hears once

    def _look_ahead(self) -> None:
        """What falls due in a moment, so that it is in memory by then."""
        self._look_due = self._clock.monotonic() + LOOK_SECONDS
        until = self._clock.now_ms() + WAKE_AHEAD_SECONDS * 1000
        known = self._known_until
        self._bring_back({p: (known[p], until) for p in self._answering if p in known and known[p] < until})
        self.dispatcher.tell(LookAround())
        if self._recount:
            self._count()

    def _bring_back(self, windows: dict[int, tuple[float, float]]) -> None:
        for partition, found in self._store.falling_due(windows):
            self._tell_of(partition, found)
            self._known_until[partition] = windows[partition][1]

    def _tell_of(self, partition: int, executions: list[tuple[str, float]]) -> None:
        for start in range(0, len(executions), CHUNK):
            self.dispatcher.tell(Recover(partition, executions[start : start + CHUNK]))

    def _read(self, after: dict[int, str], block_ms: int | None) -> bool:
        entries = self._store.read(after, block_ms, READ_COUNT)
        if self._store.unreadable.keys() != self._unreadable:
            self._unreadable = frozenset(self._store.unreadable)
            for partition, why in self._store.unreadable.items():
                told = "the inbox of partition %d is a stranger's key (%s): remove it"
                say(logger, "KeyUnreadable", told, partition, why, partition=partition, detail=why)
        for entry in entries:
            after[entry.partition] = entry.entry_id
        if entries:
            self.dispatcher.tell(InboxRead(entries))
        return bool(entries)

    def _sweep(self) -> None:
        """What no actor holds though it was read or is overdue: found and counted by the dispatcher.

        What came or became due a moment ago is on its way: it counts if the sweep before saw it too.
        """
        self._sweep_due = self._clock.monotonic() + SWEEP_SECONDS
        overdue = self._clock.now_ms() - OVERDUE_MS
        lying: dict[tuple[int, str], Entry] = {}
        due: set[str] = set()
        for partition in self._answering:
            last = self._after[partition]
            if last != START:
                for entry in self._store.scan(partition, START, SWEEP_MAX):
                    if order(entry.entry_id) <= order(last):
                        lying[partition, entry.entry_id] = entry
            due.update([execution_id for execution_id, _ in self._store.due(partition, overdue, SWEEP_MAX)])
        entries = [entry for key, entry in lying.items() if key in self._lying_before]
        executions = sorted(due & self._due_before)
        self._lying_before = set(lying)
        self._due_before = due
        if entries or executions:
            self.dispatcher.tell(Swept(entries, executions))
        self._count()

    def _count(self) -> None:
        """So that people see what waits, though most of it is not in memory."""
        self._recount = False
        owned = list(self._after)
        if owned or self._counted:
            unapplied = self._holdings.unapplied
            begun = unapplied.oldest(BEGUN_MAX, among=self._after)
            counts = self._store.count(self._after, [(partition, entry_id) for _, partition, entry_id in begun])
            self._observer(store_events.ExecutionsCounted(counts.sizes, counts.waiting))
            self._observer(store_events.BackoffsCounted(counts.backoffs))
            since = [] if counts.lying.unread_ms is None else [counts.lying.unread_ms]
            for began, partition, entry_id in begun:
                if (partition, entry_id) in counts.lying.there:
                    since.append(began)
                else:  # whoever took it out, Redis is right
                    unapplied.done(partition, entry_id)
            now = self._clock.now_ms()
            unapplied.lag = max(0, now - min(since, default=now)) / 1000
            self._observer(store_events.LyingCounted(counts.lying, unapplied.lag))
            self.dispatcher.tell(CountStarts())
        self._counted = bool(owned)
        self._counted_at = self._clock.monotonic()
