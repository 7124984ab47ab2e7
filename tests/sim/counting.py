"""What is counted in a simulation, held against rows and bodies by the rules M1 to M14 of docs/metrics.md.

Each shard counts on a sheet of its own, as processes do, and one object adds them up, as the worker's parent does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from sim.harness import SimShard, World
from tally.numbers import Labels, Numbers, Tally, differences
from tally.page import numbers_of
from tally.rows import later_of, tally_of
from tally.rules import broken_by_bodies, broken_by_rows

from stepwell.actors import store_events
from stepwell.actors.bus import Subscriber
from stepwell.core import events, records
from stepwell.core.events import Event
from stepwell.core.rules.facts import step_name
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
    """Watches a world from its beginning; `check` at any moment of rest. `exact`: the clocks of all shards agree."""

    def __init__(self, world: World, exact: bool = True) -> None:
        self.world = world
        self._exact = exact
        self._sheets: list[Sheet] = []
        self._beyond: dict[str, SimShard] = {}
        self._here = frozenset(each.name for each in world.registry)
        world.counts = self._born

    def _born(self, shard: SimShard) -> tuple[Subscriber, ...]:
        self._beyond[shard.name] = shard
        self._sheets.append(self._sheet())
        return (MetricsSubscriber(self._sheets[-1]),)

    def numbers(self, *beside: Event) -> Numbers:
        """What a page would show; `beside`: as if these had been told, too."""
        sheet = self._sheet()
        tell = MetricsSubscriber(sheet)
        for event in beside:
            tell(event)
        totals = Totals()
        for place, each in enumerate((*self._sheets, sheet)):
            totals.attach(place, each.source)
        return numbers_of(Page(openmetrics=False).render(totals.take()))

    def _sheet(self) -> Sheet:
        return Sheet.in_memory(self.world.clock, self._here)

    def untold(self) -> list[tuple[Event, Commit]]:
        """Events of commits that Redis has, and that nobody was told of. M9: none is told twice, or for nothing."""
        told = Counter(map(repr, self._told()))
        committed = Counter(repr(event) for event, _ in self._committed())
        assert told <= committed, f"M9: told, and in no commit (or told twice): {told - committed}"
        lacking = committed - told
        missing = []
        if lacking:
            # Of events that are equal, whoever could not tell any more has not told.
            excused_first = sorted(self._committed(), key=lambda each: not self._may_be_untold(each[1]))
            for event, commit in excused_first:
                if lacking[repr(event)]:
                    lacking[repr(event)] -= 1
                    missing.append((event, commit))
        return missing

    def _told(self) -> Iterable[Event]:
        for event in self.world.events:
            away = isinstance(event, events.BackoffLeft) and event.why == "unloaded"
            unread = isinstance(event, events.ExecutionParked) and event.reason in UNREAD
            if not (away or unread or isinstance(event, PASSING)):
                yield event

    def _committed(self) -> Iterable[tuple[Event, Commit]]:
        done: dict[str, Commit] = {}
        for sent in self.world.sent:
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
        found = {name for names in self.world.statuses().values() for name in names}
        return {name: self.world.row(name) for name in found}

    def check(self) -> list[Event]:
        """All rules hold of what is shown and what the dead could not tell any more. Returns the latter."""
        missing = self.untold()
        for event, commit in missing:
            excused = self._may_be_untold(commit)
            assert excused, f"M9: {event} is in Redis, was never told, and its teller lives and owns it"
        silent = [event for event, _ in missing]
        wrong = self.wrong(silent)
        assert not wrong, "\n".join(wrong)
        told, there = self.letters()
        assert told <= there, f"M13: {told} dead letters are told, and {there} were written"
        return silent

    def letters(self) -> tuple[int, int]:
        """How many dead letters were told, and how many were written."""
        keys = self.world.keys
        streams = [keys.ingress_dead, *(part.dead for part in keys.parts)]
        there = sum(self.world.client.xlen(stream) for stream in streams) + self.world.replays
        return len(self.world.of_type(store_events.DeadLettered)), there

    def tally(self) -> Tally:
        """What the rows say."""
        return tally_of(self.rows(), self._here)

    def wrong(self, beside: Sequence[Event] = ()) -> list[str]:
        """The rules that do not hold of what is shown, as if those beside had been told, too, each with the numbers."""
        known, shown = self.tally(), self.numbers(*beside)
        found = broken_by_rows(known, shown)
        if not known.running:
            found += broken_by_bodies(shown, self._bodies(), self.calm)
        if self.even:
            found += [f"M14: {text}" for text in differences(self.lateness(), shown, (i.RETRY_LATENESS,))]
        return found

    @property
    def even(self) -> bool:
        """Whether rows, and what people have asked for, say how late each body began: all clocks agree, none was set,
        and nothing that was tried again was cut short or parked."""
        told = (*self.world.of_type(events.StepInterrupted), *self.world.of_type(events.ExecutionParked))
        put_off = any(later_of(self.world.row(name)) for name in {event.execution_id for event in told})
        return self._exact and self.calm and not self.world.stepped and not put_off

    def lateness(self) -> Tally:
        """How late the bodies of later attempts began."""
        tally, by_hand = Tally(), self._by_hand()
        for name, fields in self.rows().items():
            for (path, n), later in later_of(fields).items():
                since = by_hand.get((name, path, n), later.due)
                assert since is not None, f"M14: {name} {path}: nobody has asked for attempt {n}"
                tally.observe(i.RETRY_LATENESS, value=max(0, later.began - since) / 1000)
        return tally

    def _by_hand(self) -> dict[tuple[str, str, int], int]:
        """When a person asked for an attempt, by execution, path and number."""
        found: dict[tuple[str, str, int], int] = {}
        retried: dict[str, tuple[int, int]] = {}
        ended: dict[tuple[str, str], int] = {}
        for place, event in enumerate(self.world.events):
            if isinstance(event, events.ExecutionResumed) and event.was == "error":
                retried[event.execution_id] = (place, event.at)
            elif isinstance(event, events.BackoffLeft) and event.why == "manual":
                found[event.execution_id, event.path, event.attempt] = event.at
            elif isinstance(event, events.StepCompleted | events.AttemptFailed | events.StepGaveUp):
                asked, at = retried.get(event.execution_id, (-1, 0))
                if asked > ended.get((event.execution_id, event.path), -1) and event.attempt > 1:
                    found[event.execution_id, event.path, event.attempt] = at
                ended[event.execution_id, event.path] = place
        return found

    def _bodies(self) -> Counter[Labels]:
        """How many began, by flow and step."""
        flows = {name: records.decode_meta(fields["meta"]).flow for name, fields in self.rows().items()}
        runs = self.world.ledger.runs
        return Counter((flows[run.execution_id], step_name(run.path)) for run in runs if run.execution_id in flows)

    @property
    def calm(self) -> bool:
        """No shard has died, no actor failed, and no partition was lost: what came of each body is told."""
        gone = self.world.of_type(store_events.PartitionGone)
        lost = any(each.why == "lost" for each in gone) or self.world.of_type(store_events.ActorFailed)
        return not (lost or any(map(self._died, (*self.world.dead, *self.world.frozen))))

    @staticmethod
    def _died(shard: SimShard) -> bool:
        """And has not left."""
        return not shard.in_order

    def _may_be_untold(self, commit: Commit) -> bool:
        """Its teller is dead, or has lost the partition before it heard that the commit was done, or somebody else had
        written over the row by then."""
        teller = self.teller(commit)
        if teller in self.world.dead and self._died(teller):
            return True
        diverged = any(
            each.execution_id == commit.execution_id for each in self.world.of_type(store_events.RowDiverged)
        )
        if diverged and not self._was_heard(commit):
            return True
        gone = self.world.of_type(store_events.PartitionGone)
        lost = any(each.partition == commit.partition and each.why == "lost" for each in gone)
        return lost and teller.holdings.lease(commit.partition) != commit.lease

    def _was_heard(self, commit: Commit) -> bool:
        """Whether a reply that it was done has come."""
        heard = (each for each in self.world.sent if isinstance(each.reply, Committed))
        return any(each.request is commit for each in heard)
