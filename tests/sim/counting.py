"""What is counted in a simulation, and what Redis holds: each event of a commit is told once, or its teller died.

Each shard counts on a sheet of its own, as processes do, and one object adds them up, as the worker's parent does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from sim.harness import SimShard, World
from tally.numbers import Numbers, Tally, differences
from tally.page import numbers_of
from tally.rows import TOLD_BY_ROWS, tally_of

from stepwell.actors import store_events
from stepwell.actors.bus import Subscriber
from stepwell.core import events
from stepwell.core.events import Event
from stepwell.core.status import PARK_CRASHED, PARK_KILLS_SHARD, PARK_UNREADABLE
from stepwell.metrics import instruments as i
from stepwell.metrics.rendering import Page
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.store.leases import parse_lease
from stepwell.store.replies import Committed
from stepwell.store.requests import Commit

UNREAD: Final = frozenset({PARK_UNREADABLE, PARK_CRASHED, PARK_KILLS_SHARD})
"""Why a row is parked that nobody has read."""
PASSING: Final = (events.RetryStarted, events.BackoffResumed, events.ResultDropped)
"""What changes nothing: told also where there is nothing to commit."""
_events = msgspec.json.Decoder(list[Event]).decode


class Counting:
    """Watches a world from its beginning; `check` at any moment of rest."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._totals = Totals()
        self._places = 0
        self._beyond: dict[str, SimShard] = {}
        self._here = frozenset(each.name for each in world.registry)
        world.counts = self._born

    def _born(self, shard: SimShard) -> tuple[Subscriber, ...]:
        sheet = Sheet.in_memory(self._world.clock, self._here)
        self._places += 1
        self._totals.attach(self._places, sheet.source)
        self._beyond[shard.name] = shard
        return (MetricsSubscriber(sheet),)

    def numbers(self, *beside: Event) -> Numbers:
        """What a page would show; `beside`: as if these had been told, too."""
        if not beside:
            return numbers_of(Page(openmetrics=False).render(self._totals.take()))
        sheet = Sheet.in_memory(self._world.clock, self._here)
        tell = MetricsSubscriber(sheet)
        for event in beside:
            tell(event)
        self._totals.attach(0, sheet.source)
        try:
            return self.numbers()
        finally:
            self._totals.end(0)

    def untold(self) -> list[tuple[Event, Commit]]:
        """Events of commits that Redis has, and that nobody was told of. None may be told twice, or for nothing."""
        told = Counter(map(repr, self._told()))
        missing = []
        for event, commit in self._committed():
            if told[repr(event)]:
                told[repr(event)] -= 1
            else:
                missing.append((event, commit))
        assert not +told, f"told, and in no commit (or told twice): {+told}"
        return missing

    def _told(self) -> Iterable[Event]:
        for event in self._world.events:
            away = isinstance(event, events.BackoffLeft) and event.why == "unloaded"
            unread = isinstance(event, events.ExecutionParked) and event.reason in UNREAD
            if not (away or unread or isinstance(event, PASSING)):
                yield event

    def _committed(self) -> Iterable[tuple[Event, Commit]]:
        done: dict[str, Commit] = {}
        for sent in self._world.sent:
            if isinstance(sent.request, Commit) and isinstance(sent.truth, Committed):
                done[sent.request.commit_id] = sent.request
        for commit in done.values():
            for event in _events(commit.event) if commit.event else ():
                if not isinstance(event, PASSING):
                    yield event, commit

    def teller(self, commit: Commit) -> SimShard:
        """The life of a shard that has sent a commit."""
        holder = parse_lease(commit.lease)
        assert holder is not None
        return self._beyond[holder.incarnation]

    def rows(self) -> dict[str, dict[str, bytes]]:
        found = {name for names in self._world.statuses().values() for name in names}
        return {name: self._world.row(name) for name in found}

    def check(self) -> list[Event]:
        """What is shown, and what the dead could not tell any more, is what the rows say. Returns the latter."""
        missing = self.untold()
        for event, commit in missing:
            assert self._may_be_untold(commit), f"{event} is in Redis, was never told, and its teller lives and owns it"
        silent = [event for event, _ in missing]
        self.compare(silent)
        return silent

    def tally(self) -> Tally:
        """What the rows say."""
        return tally_of(self.rows(), self._here)

    def compare(self, beside: Sequence[Event] = ()) -> None:
        """What is shown, as if those beside had been told, too, is what the rows say."""
        shown = self.numbers(*beside)
        failures = shown.counts.get(i.STEP_FAILURES, {})
        for labels in [each for each in failures if each[-1] == "nondeterminism"]:
            del failures[labels]  # a row does not keep why it was parked
        wrong = differences(self.tally(), shown, TOLD_BY_ROWS)
        assert not wrong, "\n".join(wrong)

    def _may_be_untold(self, commit: Commit) -> bool:
        """Its teller is dead, or has lost the partition before it heard that the commit was done."""
        gone = self._world.of_type(store_events.PartitionGone)
        lost = any(each.partition == commit.partition and each.why == "lost" for each in gone)
        return lost or self.teller(commit) in self._world.dead
