"""One run: a schedule is carried out, watched at every turn, brought to its end, and judged."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sim.counting import Counting
from sim.counts import check_all_is_over, check_shard
from sim.explore import acts
from sim.explore.interruptions import Interruptions
from sim.explore.model import Model
from sim.explore.plans import FLOWS
from sim.explore.promises import Promises
from sim.explore.schedule import Beat, Schedule
from sim.explore.story import Story, Tell
from sim.explore.verbs import Verbs
from sim.explore.world import ExploredShard, ExploredWorld, everybodys_time
from sim.tail import Tail

import stepwell.actors.mirror
from stepwell.actors import store_events
from stepwell.actors.kit.supervision import RestartIntensity

# How long to wait at the end before helping those that wait for somebody, in virtual seconds; delays are up to 200 s.
PATIENCE = (*[6.0] * 20, *[30.0] * 30, *[120.0] * 30)


@dataclass
class Outcome:
    """What became of a run. `broken`: the promise that was broken, '' if none; `where`: the place in the code."""

    seed: int
    broken: str = ""
    where: str = ""
    beats: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    bodies: int = 0
    executions: int = 0
    virtual_seconds: float = 0.0
    digest: str = ""
    trace: list[str] = field(default_factory=list)


class Exploration:
    """A schedule under way."""

    def __init__(self, schedule: Schedule, tell: Tell | None = None) -> None:
        self.schedule = schedule
        self.chance = random.Random()
        self.chance.seed(schedule.stream(-1))
        self.world = ExploredWorld(FLOWS.values(), schedule.setting, self.chance)
        self.promises = Promises(self.world)
        self.world.audit = self.promises
        self.world.checks.append(self._check_counts)
        setting = schedule.setting
        self.interruptions = Interruptions(self.world)
        self.counting = Counting(self.world, exact=not setting.drifts)
        self.model = Model(exact=not setting.drifts)
        self.verbs = Verbs(
            self.world,
            self.model,
            schedule.seed,
            executions=setting.executions,
            absent=schedule.absent,
            ingress=True,
        )
        self.verbs.began = self.promises.began
        self.tail = Tail(self.world)
        self.leaving: list[ExploredShard] = []
        self.faults: Counter[str] = Counter()
        self.entries_may_lie = False  # a sweep is the only one that can find what was lost
        self.executions_may_lie = False
        self._story = None if tell is None else Story(self.world, tell)
        if self._story is not None:
            self.world.weather.tell = self.say
            self.world.after_turn = self._watch

    def say(self, text: str) -> None:
        """A line of the trace."""
        if self._story is not None and text:
            self._story.line(text)

    def _watch(self) -> None:
        assert self._story is not None
        self._story.go_on()
        self.promises.after_turn()

    def _check_counts(self) -> None:
        if self.world.stepped:  # what counts as busy depends on what the clock says
            return
        for shard in self.shards():
            if not shard.held_up:
                check_shard(shard)

    # What acts ask for.

    def shards(self) -> list[ExploredShard]:
        """Those that get turns."""
        return [shard for shard in self.world.shards if isinstance(shard, ExploredShard)]

    def staying(self) -> list[ExploredShard]:
        """Those that are not on their way out."""
        return [shard for shard in self.shards() if shard not in self.leaving and not shard.failing.parts]

    def forgot(self) -> None:
        """The server has forgotten something."""
        self.promises.lost()
        self.interruptions.forget()
        self.model.lossy = True

    # The run.

    def go(self) -> None:
        """All of it. Raises at the turn that breaks a promise."""
        for beat in self.schedule.beats:
            self._beat(beat)
        self.chance.seed(self.schedule.stream(-2))
        self._calm()
        self.model.check(self.world)
        if not self.model.lossy:
            self.counting.check()
        self._check_sweeps()
        if self.schedule.setting.gentle:
            self._check_gentle()
        self._check_all_is_over()

    def _check_sweeps(self) -> None:
        """A sweep is a last resort: nothing but what was lost on purpose needs it."""
        found = self.world.of_type(store_events.SweepFound)
        lay = any(each.entries for each in found)
        assert self.entries_may_lie or not lay, f"only a sweep has found an entry: {found}"
        late = any(each.executions for each in found)
        assert self.executions_may_lie or not late, f"only a sweep has found an execution: {found}"

    def _check_gentle(self) -> None:
        """Where nothing breaks, no attempt runs twice, nobody dies or loses a lease, and all is told."""
        ran = Counter((run.execution_id, run.path, run.attempt) for run in self.world.ledger.runs)
        twice = [each for each, times in ran.items() if times > 1]
        assert not twice, f"nothing broke, and they ran more than once: {twice}"
        assert self.counting.calm, "nothing broke, and a shard has died or lost a partition"
        told, written = self.counting.letters()
        assert told == written, f"M13: nothing broke, {told} dead letters were told, and {written} were written"
        fenced = self.world.of_type(store_events.Fenced)
        assert not fenced, f"nothing broke, and yet: {fenced}"

    def _check_all_is_over(self) -> None:
        """Nothing is kept of what has ended."""
        self.world.run_for(14.0)
        if not self.schedule.setting.sharing:  # nobody renews there
            for _ in range(2):
                for shard in self.shards():
                    shard.leases.hurry()
                self.world.settle()
            self.world.run_for(14.0)
        check_all_is_over(self.world)

    def _beat(self, beat: Beat) -> None:
        self.chance.seed(self.schedule.stream(beat.number))
        if not self.staying() and (joined := acts.join(self)):
            self.say(f"beat {beat.number}: {joined}")
        did = acts.ACTS[beat.act](self)
        if did:
            self.faults[beat.act] += 1
            self.say(f"beat {beat.number}: {did}")
        self.promises.after_turn()
        for _ in range(beat.turns):
            if not self.world.shards:
                break
            self.world.turn(self.chance.choice(self.world.shards))
        self._end_of_drains()

    def _end_of_drains(self) -> None:
        """Who has handed over all ends; in a rough world grace may be over before that."""
        for shard in list(self.leaving):
            if shard not in self.world.shards:
                if shard not in self.world.frozen:
                    self.leaving.remove(shard)
                continue
            if shard.failing.parts:
                self.leaving.remove(shard)
                continue
            impatient = not self.schedule.setting.gentle and self.chance.random() < 0.02
            if (shard.holdings.partitions() and not impatient) or not shard.mirror.idle:
                continue
            weather = self.world.weather
            if weather.down or weather.threatens or shard.slow or shard.paused:
                continue
            if shard.holdings.partitions():
                shard.drain()
                self.faults["grace over"] += 1
            self.leaving.remove(shard)
            shard.bug.mend()
            self.world.doomed = False
            shard.cut_short()
            self.promises.after_turn()
            shard.release()
            self.say(f"shard {shard!r} has left")

    def _calm(self) -> None:
        """No more faults: everything comes to its end."""
        world = self.world
        self.say("no more faults from here on")
        # A connection that had to break does not any more: who reads by it goes on behind what is there again.
        self.entries_may_lie = self.entries_may_lie or (self.promises.forgot and "inbox" in world.weather.threatens)
        world.weather.clear()
        world.doomed = False
        for frozen in list(world.frozen):
            world.thaw(frozen)
        for shard in self.shards():
            shard.hasten()
            shard.bug.mend()
            shard.judge(lambda _request: None)
        for patience in PATIENCE:
            if not self.staying() and (joined := acts.join(self)):
                self.say(joined)
            world.run_for(patience)
            self._end_of_drains()
            waiting = self.verbs.mend(self.chance) or any(shard.failing.parts for shard in self.shards())
            if not waiting and not world.peek.addressed() and not world.client.xlen(world.keys.ingress):
                return
        left = [(name, world.show(name)["open"]) for name in self.verbs.unended()]
        raise AssertionError(f"they never end: {left}" if left else f"never read: {world.inbox()}")


@contextmanager
def _patched(schedule: Schedule, world: ExploredWorld) -> Iterator[None]:
    batch, record = stepwell.actors.mirror.BATCH_REQUESTS_MAX, RestartIntensity.record
    stepwell.actors.mirror.BATCH_REQUESTS_MAX = schedule.setting.batch
    RestartIntensity.record = lambda *_: True  # type: ignore[method-assign]
    try:
        with everybodys_time(world):
            yield
    finally:
        stepwell.actors.mirror.BATCH_REQUESTS_MAX = batch
        RestartIntensity.record = record  # type: ignore[method-assign]


@contextmanager
def under_way(schedule: Schedule, tell: Tell | None = None) -> Iterator[Exploration]:
    """A run that is about to `go`."""
    with ExitStack() as stack:
        run = Exploration(schedule, tell)
        stack.callback(run.world.close)
        stack.enter_context(_patched(schedule, run.world))
        yield run


def carry_out(schedule: Schedule, tell: Tell | None = None) -> Outcome:
    """Run a schedule; whatever goes wrong is in the outcome."""
    outcome = Outcome(schedule.seed, beats=len(schedule.beats))
    with under_way(schedule, tell) as run:
        try:
            run.go()
        except Exception as error:
            outcome.broken = _told(error)
            outcome.where = "".join(traceback.format_exception(error))
        world = run.world
        outcome.faults = run.faults + Counter({f"link: {fate}": n for fate, n in world.weather.happened.items()})
        outcome.commits = len(world.sent)
        outcome.bodies = len(world.ledger.runs)
        outcome.executions = len(run.model.plans)
        outcome.virtual_seconds = world.clock.monotonic()
        outcome.digest = digest(world)
    return outcome


def _told(error: BaseException) -> str:
    if isinstance(error, AssertionError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return str(error) or f"{place.name}: {place.line}"
    return f"{type(error).__name__}: {error}"


def digest(world: ExploredWorld) -> str:
    """The same for two runs in which everything happened in the same way."""
    seen: list[Any] = [(type(each.request).__name__, each.done, repr(each.truth)) for each in world.sent]
    seen += [repr(each) for each in (*world.events, *world.store_events)]
    seen += [repr(run) for run in world.ledger.runs]
    seen.append(world.clock.monotonic())
    return hashlib.blake2b(repr(seen).encode(), digest_size=12).hexdigest()
