"""A storm of failures: each counter says what the rows and the bodies say, exactly, and gauges come back to 0."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sim.bodies import work
from sim.counting import Counting
from sim.explore import run
from sim.explore.schedule import draw
from sim.harness import World
from sim.shown import moved, sheet_of

from stepwell import FatalError, Retry, RetryAfter, current_step, flow, gather, sleep, step, wait_for
from stepwell.actors import store_events
from stepwell.actors.messages import CheckRecovered, InboxRead, StepDone
from stepwell.core import events
from stepwell.core.errors import StepCrashed, StepTimeout
from stepwell.metrics import instruments as i
from stepwell.metrics.instrument import Instrument
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals
from stepwell.store.inbox import InboxStore

MakeWorld = Callable[..., World]
QUICK = Retry(max_attempts=4, base=0.5, jitter=0.0)
TESTS = Path(__file__).resolve().parent.parent


@step(retry=QUICK)
async def shaky(failures: int) -> int:
    attempt = current_step().attempt
    if attempt <= failures:
        raise ValueError(f"attempt {attempt}")
    return attempt


@step(retry=Retry(max_attempts=3, base=0.5, jitter=0.0), timeout=2)
async def slow() -> None:
    await work(10)


@step(retry=Retry(max_attempts=3, give_up_on=(StepTimeout,)), timeout=2)
async def strict() -> None:
    await work(10)


@step
async def fatal() -> None:
    raise FatalError("no use")


@step
async def odd() -> object:
    return object()


@step(retry=Retry(base=0.1, jitter=0.0))
async def polite() -> str:
    if current_step().attempt == 1:
        raise RetryAfter(7.0)
    return "in"


@step(retry=Retry(base=0.1, jitter=0.0))
async def dies() -> str:
    if current_step().attempt == 1:
        raise StepCrashed("its process was killed by signal 9")
    return "mended"


@step(retry=Retry(max_attempts=3, base=600, cap=600, jitter=0.0))
async def resting() -> str:
    if current_step().attempt == 1:
        raise ValueError("come back later")
    return "rested"


@step
async def toil() -> str:
    await work(5)
    return "done"


@flow
async def bumpy(failures: int) -> int:
    return await shaky(failures)


@flow
async def too_slow() -> None:
    await slow()


@flow
async def strictly() -> None:
    await strict()


@flow
async def doomed() -> None:
    await fatal()


@flow
async def oddly() -> None:
    await odd()


@flow
async def politely() -> list[str]:
    return [await polite(), await dies()]


@flow
async def rests() -> str:
    return await resting()


@flow
async def torn() -> None:
    await gather(resting(), later(), stumbles())


@step
async def breaks() -> None:
    await work(3)
    raise FatalError("torn")


@step
async def stumbles() -> None:
    await work(5)
    raise ValueError("too late to be tried again")


@flow
async def later() -> None:
    await breaks()


@flow
async def waits() -> str:
    await sleep(1)
    await wait_for("word", timeout=60)
    return await toil()


class Code:
    """The deployed code of `forks`."""

    first = shaky


@flow
async def forks() -> str:
    await Code.first(0)
    await sleep(30)
    return await toil()


@step
async def other(_: int) -> int:
    return 0


FLOWS = (bumpy, too_slow, strictly, doomed, oddly, politely, rests, torn, waits, forks)


@pytest.fixture
def _first_code() -> Iterator[None]:
    yield
    Code.first = shaky


@pytest.fixture
def storms_world(make_world: MakeWorld) -> World:
    return make_world(*FLOWS)


@pytest.fixture
def counting(storms_world: World) -> Counting:
    return Counting(storms_world)


@pytest.fixture
def storm(storms_world: World, counting: Counting, _first_code: None) -> World:
    """After it: everything has ended, or is parked for good."""
    world = storms_world
    world.parents = True
    shard = world.shard(parent="parent,boot,1,1")
    for number in range(10):
        world.start(bumpy, f"b{number}", failures=3)
    for number in range(2):
        world.start(bumpy, f"h{number}", failures=9)
    for made in (too_slow, strictly, doomed, oddly, politely, waits, torn):
        world.start(made, made.name)
    for name in ("by hand", "cancelled", "in time", "overdue"):
        world.start(rests, name.replace(" ", "-"))
    world.run_for(100)
    world.signal("waits", "word")
    world.retry("by-hand")
    world.cancel("cancelled")
    world.retry("h0")  # it fails once more
    world.run_for(10)
    world.signal("b0", "nobody")
    world.start(forks, "forks")
    world.start(waits, "cut")
    world.signal("cut", "word")
    world.run(lambda: world.ledger.of("cut", "toil"))
    world.run_for(1)
    world.crash(shard)
    Code.first = other
    world.run_for(1000)
    world.shard()
    world.run_for(20)
    Code.first = shaky
    world.retry("forks")
    world.run_for(20)
    world.send("nonsense", "b0")
    (last,) = world.shards
    last.context.dispatcher.tell(CheckRecovered(last.holdings.unrecovered()))  # as the leases do twice a second
    world.run_for(100)
    return world


def samples(sheet: Sheet) -> Iterator[tuple[str, dict[str, str], float]]:
    totals = Totals()
    totals.attach(0, sheet.source)
    yield from samples_of(totals.take())


def counted(sheet: Sheet, instrument: Instrument, *labels: str) -> dict[tuple[str, ...], int]:
    """What a counter has, by some of its labels."""
    found: Counter[tuple[str, ...]] = Counter()
    for name, values, n in samples(sheet):
        if name == instrument.full_name:
            found[tuple(values[label] for label in labels)] += int(n)
    return dict(+found)


@pytest.mark.pain(20)
def test_after_a_storm_each_counter_says_what_the_rows_and_the_bodies_say(storm: World, counting: Counting) -> None:
    sheet = sheet_of(storm)
    assert counting.check() == [], "the crash came when nothing was on its way"
    outcomes = {outcome: n for (outcome,), n in counted(sheet, i.STEP_ATTEMPTS, "outcome").items()}
    assert sum(outcomes.values()) == len(storm.ledger.runs)
    assert outcomes["interrupted"] == 1
    assert outcomes["timeout"] == 3 + 1
    assert counted(sheet, i.STEP_RETRIES_SCHEDULED, "reason") == {
        ("error",): 10 * 3 + 2 * 3 + 3 + 5,
        ("timeout",): 2,
        ("retry_after",): 1,
        ("crash",): 1,
    }
    assert counted(sheet, i.STEP_FAILURES, "step", "reason") == {
        ("shaky", "budget"): 3,
        ("slow", "budget"): 1,
        ("strict", "deadline"): 1,
        ("fatal", "fatal"): 1,
        ("breaks", "fatal"): 1,
        ("stumbles", "gather"): 1,
        ("odd", "payload"): 1,
        ("shaky", "nondeterminism"): 1,
    }
    assert counted(sheet, i.STEP_CRASHES, "step") == {("dies",): 1}


@pytest.mark.pain(20)
def test_what_ends_a_backoff_is_told_apart(storm: World) -> None:
    sheet = sheet_of(storm)
    assert counted(sheet, i.RETRY_WAKEUPS, "source") == {
        ("timer",): 10 * 3 + 2 * 3 + 3 + 2 + 2,
        ("manual",): 1,
        ("recovery",): 2,
    }
    assert counted(sheet, i.BACKOFFS_ABANDONED, "reason") == {("cancel",): 1, ("gather",): 1}


@pytest.mark.pain(20)
def test_a_retry_is_late_by_what_its_body_began_after_it_was_due(storm: World) -> None:
    begun = {(run.execution_id, run.path, run.attempt) for run in storm.ledger.runs if run.attempt > 1}
    started = storm.of_type(events.RetryStarted)
    assert {(event.execution_id, event.path, event.attempt) for event in started} == begun
    assert len(started) == len(begun)
    late = {event.execution_id: event.lateness_ms for event in started if event.lateness_ms > 1}
    assert set(late) == {"in-time", "overdue"}
    assert all(ms >= 300_000 for ms in late.values())


def test_gauges_come_back_to_nothing(storm: World) -> None:
    sheet = sheet_of(storm)

    def level(instrument: Instrument, *values: str) -> float:
        found = sheet.level(instrument, *values)
        return found.numbers[found.at]

    statuses = storm.statuses()
    for status in ("queued", "running", "waiting", "parked"):
        assert level(i.EXECUTIONS_NOW, status) == 0
    assert level(i.EXECUTIONS_NOW, "error") == len(statuses["error"])
    assert level(i.EXECUTIONS_WAITING, "timed") == level(i.EXECUTIONS_WAITING, "untimed") == 0
    assert level(i.EXECUTIONS_BACKING_OFF, "rests") == 0
    assert str(level(i.RETRY_NEXT_DUE, "rests")) == "nan"
    assert level(i.INBOX_LENGTH) == level(i.INBOX_LAG) == level(i.SUSPECTS) == 0
    assert level(i.DEAD_LETTERS_KEPT) == len(storm.dead_letters()) == 1
    (shard,) = storm.shards
    assert shard.runner.bodies == {"loop": 0, "thread": 0, "process": 0}
    assert shard.runner.set_apart == (0, 0)


def test_while_they_last_gauges_show_who_backs_off_and_when_the_next_is_due(make_world: MakeWorld) -> None:
    world = make_world(rests)
    world.shard()
    began = world.clock.now_ms()
    for number in range(3):
        world.start(rests, f"r{number}")
    world.run_for(30)
    told = world.of_type(store_events.BackoffsCounted)[-1]
    assert told.by_flow == {"rests": (3, began + 600_000)}
    assert world.of_type(store_events.ExecutionsCounted)[-1].waiting == {"timed": 3, "untimed": 0}


def test_what_lies_in_inboxes_is_counted_with_its_age(make_world: MakeWorld) -> None:
    world = make_world(rests)
    shard = world.shard()
    shard.paused.add("mirror")
    world.start(rests, "r0")
    world.run_for(20)
    told = world.of_type(store_events.LyingCounted)[-1]
    assert told.lying.entries == 1
    assert told.oldest_age == pytest.approx(20, abs=6)
    shard.paused.clear()
    world.run_for(30)
    assert world.of_type(store_events.LyingCounted)[-1].lying.entries == 0


def test_a_partition_taken_over_after_a_death_is_a_recovery_until_all_is_seen_to(storm: World) -> None:
    gained = [event.cause for event in storm.of_type(store_events.PartitionGained)]
    assert Counter(gained) == {"": 2, "boxed": 2}
    assert len(storm.of_type(store_events.PartitionRecovered)) == 2


def test_a_message_that_brings_back_what_is_overdue_is_what_woke_it(make_world: MakeWorld) -> None:
    world = make_world(rests)
    shard = world.shard()
    world.start(rests, "r0")
    world.run_for(60)
    world.crash(shard)
    world.run_for(1000)
    world.signal("r0", "hello")
    late = world.shard()
    late.paused.add("reader")
    world.settle()
    late.context.dispatcher.tell(_command_only(world))
    world.settle()
    late.paused.clear()
    world.run(lambda: world.ended("r0"))
    assert [event.why for event in world.of_type(events.BackoffLeft)][-1] == "signal"


def _command_only(world: World) -> object:
    store = InboxStore(world.client, world.keys, world.scripts)
    return InboxRead(store.read(dict.fromkeys(range(world.keys.partitions), "0-0"), None, 100))


def test_an_outcome_that_nobody_waits_for_any_more_is_dropped_and_counted(make_world: MakeWorld) -> None:
    world = make_world(too_slow)
    shard = world.shard()
    world.start(too_slow, "r0")
    world.run_for(1)
    ref = shard.ref("r0")
    assert ref is not None
    ref.tell(StepDone("slow", 9, 0, 0, b"1"))
    world.settle()
    assert counted(sheet_of(world), i.DUPLICATES_SUPPRESSED, "kind") == {("result",): 1}


# Who shows that the rest moves: what only threads, processes and a parent have, or what needs a fault of its own.
MOMENT = "unit/metrics/test_shard_metrics.py::test_the_moment_is_asked_for_at_each_refresh"
OBSERVED = "unit/metrics/test_shard_metrics.py::test_what_is_observed_is_counted"
SHARD = "unit/worker/test_shard.py::test_a_shard_says_what_it_does_at_this_moment"
WORKER = "unit/metrics/test_worker_metrics.py::test_a_worker_says_what_runs_and_how_its_shards_do"
PAGE = "unit/metrics/test_worker_metrics.py::test_the_next_page_says_what_the_one_before_has_cost"
ELSEWHERE = {
    i.ABANDONED_THREADS: MOMENT,
    i.ACTORS_READY: MOMENT,
    i.BUILD: WORKER,
    i.COUNTS_AGE: MOMENT,
    i.EXECUTIONS_IN_MEMORY: MOMENT,
    i.EXECUTIONS_RUNNING_LIMIT: SHARD,
    i.EXPOSITION_BYTES: PAGE,
    i.EXPOSITION_SECONDS: PAGE,
    i.GUARANTEE: "unit/metrics/test_shard_metrics.py::test_only_one_guarantee_is_in_force",
    i.INGRESS_LENGTH: OBSERVED,
    i.LEASES_HELD: SHARD,
    i.LEFT_ALONE: OBSERVED,
    i.MAILBOX_MESSAGES: MOMENT,
    i.MIRROR_DIVERGENCE: OBSERVED,
    i.NOT_SAFE: OBSERVED,
    i.PARTITIONS: MOMENT,
    i.QUARANTINE_QUEUE: MOMENT,
    i.QUARANTINED_STEPS: MOMENT,
    i.ROWS_MISSING: OBSERVED,
    i.SHARD_CPU: "unit/worker/test_sheets.py",
    i.SHARD_MEMORY: "unit/worker/test_sheets.py",
    i.SHARD_RESTARTS: WORKER,
    i.SHARDS: WORKER,
    i.SPANS_LOST: "unit/metrics/test_shard_metrics.py",
    i.STARTED: WORKER,
    i.STEP_OVERRUNS: OBSERVED,
    i.STEPS_LIMIT: SHARD,
    i.STEPS_RUNNING: MOMENT,
    i.UNDELIVERED: "unit/metrics/test_shard_metrics.py::test_messages_to_actors_that_were_gone_are_counted",
}
SEEDS = (10, 4, 32, 9, 2, *range(40))


def test_every_event_happens_and_every_metric_moves(storm: World, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {each.full_name for each in i.INSTRUMENTS} - {each.full_name for each in ELSEWHERE} - moved(storm)
    unseen = set(events.EVENTS) - {type(event) for event in storm.events}

    def look(world: World) -> str:
        missing.difference_update(moved(world))
        unseen.difference_update(type(event) for event in world.events)
        return ""

    monkeypatch.setattr(run, "digest", look)
    for seed in SEEDS:
        if not missing and not unseen:
            break
        run.carry_out(draw(seed))
    assert not missing
    assert not unseen


@pytest.mark.parametrize(("instrument", "test"), ELSEWHERE.items(), ids=lambda each: getattr(each, "name", None))
def test_what_is_said_to_be_shown_elsewhere_is(instrument: Instrument, test: str) -> None:
    file, _, function = test.partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")
    constant = next(name for name, value in vars(i).items() if value is instrument)
    assert not function or f"def {function}(" in text
    assert re.search(rf"\b(?:stepwell_)?{instrument.name}(?:_total)?\b|\b{constant}\b", text)
