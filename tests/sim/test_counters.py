"""Every number is what rows and bodies say, whoever dies in between."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sim.bodies import work
from sim.counting import Counting
from sim.explore.run import under_way
from sim.explore.schedule import draw
from sim.harness import ShardDied, World
from sim.reference import play, reference
from tally.numbers import Numbers, Tally, differences
from tally.rows import TOLD_BY_ROWS

from stepwell import Retry, current_step, flow, step
from stepwell.actors import store_events
from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND, NO_FAILPOINTS, FailAt
from stepwell.core import events
from stepwell.core.limits import Limits
from stepwell.core.rules.facts import step_name
from stepwell.metrics import instruments as i
from stepwell.store.inbox import COMMAND_FORMAT, InboxStore

MakeWorld = Callable[..., World]
COMMITS = 18
GENTLE = [seed for seed in range(300) if draw(seed).setting.gentle][:12]
FOREIGN = 50


@step(retry=Retry(max_attempts=3, base=1.0))
async def slow(seconds: float) -> None:
    if current_step().attempt == 1:
        raise ConnectionError("at once")
    await work(seconds)


@flow
async def slowly(seconds: float) -> None:
    await slow(seconds)


OTHER_CODE: set[str] = set()


@flow
async def changing() -> None:
    """Its code is another one while that set has something in it."""
    await (fine() if OTHER_CODE else slow(5.0))


@step
async def fine() -> int:
    return 1


def attempts(world: World, counting: Counting, outcome: str) -> Counter[tuple[str, str]]:
    """How many are counted as ended so, by flow and step."""
    found: Counter[tuple[str, str]] = Counter()
    for (flow_name, name, how), n in counting.numbers().counts.get(i.STEP_ATTEMPTS, {}).items():
        if how == outcome:
            found[flow_name, name] += int(n)
    return found


def bodies(world: World) -> Counter[tuple[str, str]]:
    """How many began, by flow and step."""
    flows = {name: world.show(name)["flow"] for name in {run.execution_id for run in world.ledger.runs}}
    return Counter((flows[run.execution_id], step_name(run.path)) for run in world.ledger.runs)


@pytest.mark.pain(20, 27, 42)
@pytest.mark.parametrize("seed", GENTLE)
def test_where_nobody_dies_every_body_and_every_retry_is_counted_once(seed: int) -> None:
    with under_way(draw(seed)) as run:
        run.go()
        assert run.counting.calm
        assert run.counting.check() == [], "nobody died, so all was told"
        shown = run.counting.numbers()
        ended = Counter[tuple[str, str]]()
        for (flow_name, name, _), n in shown.counts.get(i.STEP_ATTEMPTS, {}).items():
            ended[flow_name, name] += int(n)
        assert ended == bodies(run.world)
        assert late_starts(run.counting) == len(later_attempts(run.world))
        assert run.counting.even or run.schedule.setting.drifts, "so each is as late as its row says"


def later_attempts(world: World) -> set[tuple[str, str, int]]:
    """Attempts that began and were not the first of their step."""
    return {(run.execution_id, run.path, run.attempt) for run in world.ledger.runs if run.attempt > 1}


def late_starts(counting: Counting) -> float:
    found = counting.numbers().spreads.get(i.RETRY_LATENESS, {}).get(())
    return 0 if found is None else found.count


def die() -> None:
    raise ShardDied


@pytest.mark.pain(42)
@pytest.mark.parametrize("side", [BEFORE_SEND, AFTER_REPLY])
@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_a_crash_at_any_commit_costs_the_counts_of_that_commit_at_most(
    make_world: MakeWorld, side: str, number: int
) -> None:
    world = make_world(reference)
    counting = Counting(world)
    world.parents = number % 2 == 0
    world.shard(failpoints=FailAt(side, number, die))

    def revive() -> None:
        if not world.shards:
            world.shard()

    world.checks.append(revive)
    play(world)
    untold = counting.untold()
    assert len({commit.commit_id for _, commit in untold}) <= (side == AFTER_REPLY)
    silent = counting.check()
    assert (silent == []) or side == AFTER_REPLY


@pytest.mark.pain(42)
@pytest.mark.parametrize("box", ["read", "unread"])
def test_what_is_in_flight_when_its_shard_dies_shows_as_interrupted_and_is_counted_once(
    make_world: MakeWorld, box: str
) -> None:
    world = make_world(slowly, partitions=8)
    world.parents = box == "read"
    counting = Counting(world)
    world.shard()
    for number in range(20):
        world.start(slowly, f"s{number}", seconds=1.0 if number % 2 else 100.0)
    world.run_for(50.0)
    in_flight = Counter(("slowly", step_name(run.path)) for run in world.ledger.runs if run.ended_ms is None)
    assert in_flight == {("slowly", "slow"): 10}
    before = counting.numbers()
    world.crash()
    assert counting.numbers() == before, "what was counted stays when its shard is gone"
    world.shard()
    world.run()
    assert attempts(world, counting, "interrupted") == in_flight
    assert counting.check() == [], "nothing was being written when it died"
    assert late_starts(counting) == len(later_attempts(world)) == 20, "what runs again is not late once more"


@pytest.mark.pain(42)
def test_what_was_cut_short_once_is_not_late_again_when_its_next_owner_leaves(make_world: MakeWorld) -> None:
    world = make_world(slowly)
    world.parents = True
    counting = Counting(world)
    world.shard()
    world.start(slowly, "s1", seconds=100.0)
    world.run(lambda: len(world.ledger.of("s1")) == 2)
    world.crash()
    leaving = world.shard()
    world.run(lambda: len(world.ledger.of("s1")) == 3)
    world.run_for(50.0)
    leaving.drain()
    world.settle()
    leaving.release()
    world.shard()
    world.run()
    assert world.ledger.attempts("s1", "slow") == [1, 2, 2, 2]
    assert late_starts(counting) == 1
    assert counting.check() == []


@pytest.mark.pain(42)
@pytest.mark.parametrize("how", ["left while it ran", "ended and not recorded"])
def test_a_retry_that_its_owner_has_begun_is_late_once_and_from_when_the_next_one_took_it_up(
    make_world: MakeWorld, how: str
) -> None:
    world = make_world(slowly)
    world.parents = True
    counting = Counting(world)
    unrecorded = how == "ended and not recorded"
    first = world.shard(failpoints=FailAt(BEFORE_SEND, 4, die) if unrecorded else NO_FAILPOINTS)
    world.start(slowly, "s1", seconds=100.0)
    world.run(lambda: len(world.ledger.of("s1")) == 2)
    if unrecorded:
        world.run(lambda: not world.shards)
    else:
        world.run_for(50.0)
        first.drain()
        world.settle()
        first.release()
    assert late_starts(counting) == 0, "it has not ended for good"
    world.shard()
    world.run()
    assert world.ledger.attempts("s1", "slow") == [1, 2, 2]
    cut = {} if unrecorded else {("slowly", "slow"): 1}
    assert attempts(world, counting, "interrupted") == cut, "no crash is known to have cut it short"
    assert counting.check() == []
    late = counting.numbers().spreads[i.RETRY_LATENESS][()]
    assert late.count == 1
    assert late.total < 1, "its body does not count as lateness"


@pytest.mark.pain(20, 42)
@pytest.mark.parametrize("how", ["a drain", "a hand-over"])
def test_a_retry_that_still_waits_for_its_turn_when_its_owner_leaves_stays_late(
    make_world: MakeWorld, how: str
) -> None:
    world = make_world(slowly, partitions=8)
    world.share()
    counting = Counting(world)
    first = world.shard(limits=Limits(steps=1))
    names = [f"s{number}" for number in range(10)]
    for name in names:
        world.start(slowly, name, seconds=50.0)
    world.run_for(40.0)
    later = later_attempts(world)
    assert len(later) == 1, "the others wait for it"
    if how == "a drain":
        first.drain()
        world.settle()
        first.release()
    world.shard()
    world.run(lambda: len(world.statuses()["completed"]) == len(names))
    world.settle()
    assert counting.check() == []
    late = counting.numbers().spreads[i.RETRY_LATENESS][()]
    assert late.count == len(names)
    assert late.total > 35 * (len(names) - 1), "since they were due, not since they were handed over"


@pytest.mark.pain(34, 42)
@pytest.mark.parametrize("why", ["not deployed here", "code diverged"])
@pytest.mark.parametrize("box", ["read", "unread"])
def test_what_was_cut_short_is_counted_also_where_it_can_not_go_on(make_world: MakeWorld, box: str, why: str) -> None:
    world = make_world(changing)
    world.parents = box == "read"
    counting = Counting(world)
    OTHER_CODE.discard("open")
    world.shard()
    world.start(changing, "c1")
    world.run(lambda: len(world.ledger.of("c1")) == 2)
    world.crash()
    if why == "code diverged":
        OTHER_CODE.add("open")
        world.shard()
    else:
        world.shard(flows=())
    world.run(lambda: world.status("c1") == "parked")
    assert world.show("c1")["error"]["type"] == why
    OTHER_CODE.discard("open")
    if why == "code diverged":
        world.retry("c1")
    else:
        world.crash()
        world.shard()
    world.run(lambda: world.status("c1") == "completed")
    assert world.ledger.attempts("c1", "slow") == [1, 2, 2]
    assert attempts(world, counting, "interrupted") == {("changing", "slow"): 1}
    assert late_starts(counting) == 1
    assert counting.check() == []


@pytest.mark.pain(12, 42)
def test_a_commit_whose_reply_is_lost_is_counted_once(make_world: MakeWorld) -> None:
    world = make_world(slowly)
    counting = Counting(world)
    world.shard()
    world.start(slowly, "s1", seconds=1.0)
    world.run(lambda: len(world.ledger.of("s1")) == 2)
    world.weather.lose.add("mirror")
    world.run()
    assert counting.check() == []
    assert counting.numbers().count(i.STEP_ATTEMPTS, outcome="ok") == 1


@pytest.mark.pain(42)
def test_flows_that_are_not_here_have_no_series_of_their_own(make_world: MakeWorld) -> None:
    world = make_world(slowly)
    counting = Counting(world)
    world.shard()
    for number in range(FOREIGN):
        world.start(f"foreign_{number}", f"f{number}")
    world.run(lambda: len(world.of_type(events.ExecutionParked)) == FOREIGN)
    for number in range(FOREIGN):
        world.cancel(f"f{number}")
    world.run()
    shown = counting.numbers()
    assert shown.counts[i.EXECUTIONS_PARKED] == {("other", "not deployed here"): FOREIGN}
    assert shown.counts[i.EXECUTIONS_ENDED] == {("other", "cancelled"): FOREIGN}


COMPLETED = events.StepCompleted("ref", "reference", "shaky", "shaky", 1, 7, 1)
FAILED = events.AttemptFailed(
    "ref", "reference", "shaky", "shaky", 1, 3, "error", "E", "", 7, 9, "token", "key", False, started_at=1
)
GAVE_UP = events.StepGaveUp(
    "ref", "reference", "shaky", "shaky", 1, "exhausted", "error", "E", "", "token", "key", 9, started_at=1
)
ONE_TOO_MANY = {
    "M1": COMPLETED,
    "M2": FAILED,
    "M3": GAVE_UP,
    "M4": FAILED,
    "M5": events.StepInterrupted("ref", "reference", "shaky", "shaky", 1, 1, 1),
    "M6": events.BackoffLeft("ref", "reference", "shaky", "shaky", "timer", 2, 1),
    "M7": events.ExecutionEnded("ref", "reference", "completed", "", 7, 9),
    "M8": COMPLETED,
    "M9": COMPLETED,
    "M10": events.ExecutionEnded("ref", "reference", "completed", "", 7, 9),
    "M11": COMPLETED,
    "M12": events.StepCompleted("ref", "reference", "shaky", "shaky", 2, 7, 1),
    "M13": store_events.DeadLettered("malformed", "it has no type"),
    "M14": events.StepCompleted("ref", "reference", "shaky", "shaky", 2, 7, 1, queued_ms=7),
}


@pytest.fixture(scope="module")
def counted() -> Iterator[Counting]:
    """Of a world in which all was counted rightly."""
    with under_way(draw(GENTLE[0])) as run:
        run.go()
        assert run.counting.calm
        yield run.counting


@pytest.mark.parametrize("rule", ONE_TOO_MANY)
def test_one_too_many_breaks_its_rule(counted: Counting, rule: str) -> None:
    world, event = counted.world, ONE_TOO_MANY[rule]
    assert counted.check() == []
    if rule in ("M9", "M13"):
        told: list[Any] = world.events if rule == "M9" else world.store_events
        told.append(event)
        with pytest.raises(AssertionError, match=rf"{rule}: .*told, and "):
            counted.check()
        told.remove(event)
    else:
        assert [text for text in counted.wrong([event]) if rule in text.partition(": ")[0].split(", ")]


def test_an_event_that_is_kept_back_breaks_its_rule(counted: Counting) -> None:
    place, kept_back = next(
        (place, event) for place, event in enumerate(counted.world.events) if isinstance(event, events.StepCompleted)
    )
    del counted.world.events[place]
    with pytest.raises(AssertionError, match=r"M9: StepCompleted.* was never told, and its teller lives"):
        counted.check()
    counted.world.events.insert(place, kept_back)


def test_the_rules_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (M\d+) \|", page, re.MULTILINE) == [*ONE_TOO_MANY]


def test_rows_tell_enough_to_find_a_fault(make_world: MakeWorld) -> None:
    """Something is in each of the metrics that they tell."""
    world = make_world(reference)
    counting = Counting(world)
    world.shard()
    play(world)
    rows = counting.tally()
    assert all(rows.counts[each] or rows.values[each] for each in TOLD_BY_ROWS if each is not i.STEP_CRASHES)


def test_where_a_row_can_not_tell_a_cancel_from_a_gather_either_will_do_and_no_more() -> None:
    known = Tally()
    known.count(i.STEP_FAILURES, "f", "s", "gather")
    known.count_either(i.STEP_FAILURES, ("f", "s", "cancel"), ("f", "s", "gather"))
    for cancels, gathers in itertools.product(range(4), repeat=2):
        told = {("f", "s", "cancel"): float(cancels), ("f", "s", "gather"): float(gathers)}
        shown = Numbers({i.STEP_FAILURES: told}, {}, {})
        assert (differences(known, shown, (i.STEP_FAILURES,)) == []) == ((cancels, gathers) in {(0, 2), (1, 1)})


@pytest.mark.pain(20)
def test_only_a_start_that_was_made_again_is_a_repeat(make_world: MakeWorld) -> None:
    """Not the doorbell of an execution that was parked as it was loaded."""
    world = make_world(slowly)
    world.shard()
    world.start("foreign", "f1")
    world.start(slowly, "s1", seconds=1.0)
    world.run(lambda: world.ledger.of("s1"))
    assert world.of_type(store_events.DuplicateSuppressed) == []
    world.run_for(0.5)
    again = {"type": "start", "execution": "s1", "flow": slowly.name, "at": world.clock.now_ms(), "v": COMMAND_FORMAT}
    store = InboxStore(world.client, world.keys, world.scripts)
    store.send(world.keys.partition_of("s1"), again)
    world.run()
    assert world.of_type(store_events.DuplicateSuppressed) == [store_events.DuplicateSuppressed("start", "s1")]


@pytest.mark.pain(20)
@pytest.mark.parametrize("read", ["while it is in memory", "when it has left memory"])
def test_the_own_entry_of_what_a_list_has_begun_is_no_repeat(make_world: MakeWorld, read: str) -> None:
    """Also where it comes twice: then it is Redis that has lost what its sender sent once."""
    world = make_world(slowly)
    world.start(slowly, "s1", seconds=1.0)
    inbox = world.keys.parts[world.keys.partition_of("s1")].inbox
    ((_, own),) = world.client.xrange(inbox)
    world.client.xtrim(inbox, maxlen=0)
    shard = world.shard()
    if read == "while it is in memory":
        world.run(lambda: world.ledger.of("s1"))
        assert shard.in_memory == ["s1"]
    else:
        world.run()
        assert (shard.in_memory, world.status("s1")) == ([], "completed")
    for _ in range(2):
        world.client.xadd(inbox, own)
        world.run()
        assert world.client.xlen(inbox) == 0
    assert world.of_type(store_events.DuplicateSuppressed) == []
