"""Redis is away for long, or its clock jumps, while executions run, sleep and back off: all goes on as it should."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.counting import Counting
from sim.harness import World

from stepwell import Retry, current_step, flow, gather, sleep, step
from stepwell.actors import store_events
from stepwell.core import events
from stepwell.store.leases import TTL_MS

MakeWorld = Callable[..., World]
TTL = TTL_MS / 1000
HOUR_MS = 3_600_000
LATER_MS = 6000  # a delay that the shorter outage does not outlast


@step(retry=Retry(max_attempts=3, base=10 * TTL, factor=1, cap=10 * TTL, jitter=0))
async def patient(failures: int = 2) -> int:
    if current_step().attempt <= failures:
        raise ConnectionError("come back much later")
    return current_step().attempt


@flow
async def backs_off(failures: int = 2) -> int:
    return await patient(failures)


@step
async def busy(seconds: float) -> float:
    await work(seconds)
    return seconds


@flow
async def works(first: float, then: float = 1.0) -> float:
    return await busy(first) + await busy(then)


@step(retry=Retry(max_attempts=3, base=15, factor=1, cap=15, jitter=0))
async def once_more() -> int:
    if current_step().attempt == 1:
        raise ConnectionError("not yet")
    return current_step().attempt


@flow
async def again() -> int:
    return await once_more()


@step(retry=Retry(max_attempts=2, base=LATER_MS / 1000, jitter=0))
async def later() -> None:
    await work(1.5)
    if current_step().attempt == 1:
        raise ConnectionError("not yet")


@flow
async def side_by_side(bodies: list[float]) -> None:
    await gather(*(busy(seconds) for seconds in bodies), later())


@flow
async def sleeps(seconds: float) -> float:
    await sleep(seconds)
    return await busy(1)


def begun(world: World, execution_id: str, path: str) -> list[float]:
    """When bodies began, in seconds of the world's wall clock."""
    return [run.at_ms / 1000 for run in world.ledger.of(execution_id) if run.path == path]


def lose_redis_amid(world: World, bodies: list[float], seconds: float) -> None:
    """Let `side_by_side` begin these bodies, then Redis be away for so long: meanwhile the first outcome is being
    written down, and the others wait."""
    world.share()
    world.shard()
    world.start(side_by_side, "e1", bodies=bodies)
    world.run(lambda: len(world.ledger.runs) == len(bodies) + 1)
    world.weather.down = True
    world.run_for(seconds)


@pytest.mark.pain(1)
def test_a_backoff_ten_times_as_long_as_a_lease_has_one_attempt_for_each_due_time(make_world: MakeWorld) -> None:
    world = make_world(backs_off, partitions=8)
    world.share()
    world.shard()
    ids = [f"e{number}" for number in range(6)]
    for each in ids:
        world.start(backs_off, each)
    world.run_for(5 * TTL)
    world.shard()  # takes half of them over while they back off
    world.run(lambda: world.ended(*ids), limit=300)
    assert len({shard.name for shard in world.shards} & {run.shard for run in world.ledger.runs}) == 2
    for each in ids:
        assert world.ledger.attempts(each, "patient") == [1, 2, 3]
        times = begun(world, each, "patient")
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(10 * TTL <= gap < 10 * TTL + 1 for gap in gaps), gaps


@pytest.mark.pain(5)
def test_redis_away_for_longer_than_a_lease_stops_what_would_begin_and_keeps_what_has_run(
    make_world: MakeWorld,
) -> None:
    world = make_world(works, again, sleeps)
    world.share()
    shard = world.shard()
    world.start(works, "ends-meanwhile", first=5.0)
    world.start(works, "ends-later", first=40.0)
    world.start(again, "due-meanwhile")
    world.start(sleeps, "wakes-meanwhile", seconds=12)
    world.run_for(1)
    grants = [grant.value for grant in shard.holdings.grants()]
    away = world.clock.now_ms() / 1000
    world.weather.down = True
    world.run_for(30)
    assert all(not shard.holdings.may_act(partition) for partition in shard.holdings.partitions())
    assert [world.client.get(part.lease) for part in world.keys.parts] == [None] * len(world.keys.parts)
    back = world.clock.now_ms() / 1000
    world.weather.down = False
    world.run(lambda: world.ended("ends-meanwhile", "ends-later", "due-meanwhile", "wakes-meanwhile"), limit=60)
    assert [run for run in world.ledger.runs if away < run.at_ms / 1000 < back] == [], (
        "nothing begins on a lapsed lease"
    )
    assert [grant.value for grant in shard.holdings.grants()] == grants, "taken back, not anew"
    assert begun(world, "ends-meanwhile", "busy#2") == pytest.approx([back], abs=1.5), "its outcome was kept"
    for each in ("ends-meanwhile", "ends-later"):
        assert (world.ledger.attempts(each, "busy"), world.ledger.attempts(each, "busy#2")) == ([1], [1])
    assert world.ledger.attempts("due-meanwhile", "once_more") == [1, 2]
    assert world.ledger.attempts("wakes-meanwhile", "busy") == [1]
    assert {event.lost for event in world.of_type(store_events.Fenced)} <= {False}
    assert world.dead_letters() == []


@pytest.mark.pain(27, 42)
@pytest.mark.parametrize("seconds", [4, 20])
def test_what_ends_while_redis_is_away_ended_with_its_body(make_world: MakeWorld, seconds: int) -> None:
    world = make_world(side_by_side)
    counting = Counting(world)
    lose_redis_amid(world, [1.0, 2.0, 2.5], seconds)
    assert all(run.ended_ms is not None for run in world.ledger.runs)
    world.weather.down = False
    world.run(lambda: world.ended("e1"), limit=120)
    ends = {(run.path, run.attempt): run.ended_ms for run in world.ledger.runs}
    shown = {step["path"]: step for step in world.show("e1")["steps"]}
    assert ends == {(path, each["n"]): each["ended_at"] for path, step in shown.items() for each in step["attempts"]}
    told = {event.path: event.duration_ms for event in world.of_type(events.StepCompleted)}
    assert [told[f"gather.{branch}/busy"] for branch in range(3)] == [1000, 2000, 2500]
    counting.check()


@pytest.mark.pain(27)
@pytest.mark.parametrize("seconds", [4, 20])
def test_what_fails_while_redis_is_away_is_tried_again_as_its_row_says(make_world: MakeWorld, seconds: int) -> None:
    world = make_world(side_by_side)
    counting = Counting(world)
    lose_redis_amid(world, [1.0], seconds)
    back = world.clock.now_ms()
    world.weather.down = False
    world.run(lambda: world.ended("e1"), limit=120)
    first, second = (run for run in world.ledger.runs if run.path == "gather.1/later")
    [attempt] = [each for each in world.show("e1")["steps"][1]["attempts"] if each["error"]]
    assert (attempt["ended_at"], attempt["due_at"]) == (first.ended_ms, (first.ended_ms or 0) + LATER_MS)
    # Over by then, it is tried again at once; else the rest of it passes, and no more than that.
    assert max(attempt["due_at"], back) <= second.at_ms <= max(attempt["due_at"] + 10, back + 1500)
    [late] = [event.lateness_ms for event in world.of_type(events.RetryStarted)]
    assert late == second.at_ms - attempt["due_at"]
    counting.check()


@pytest.mark.pain(5, 32)
@pytest.mark.parametrize("loaded", [0, 1, 40, 90])
def test_redis_gone_for_two_seconds_while_executions_are_recovered_strands_none(
    make_world: MakeWorld, loaded: int
) -> None:
    world = make_world(works, sleeps, again)
    world.shard()
    ids = [f"e{number}" for number in range(200)]
    for number, each in enumerate(ids):
        if number % 2:
            world.start(sleeps, each, seconds=30)
        else:
            world.start(again, each)
    world.run_for(1)
    world.crash()
    world.run_for(0)
    shard = world.shard()
    world.run(lambda: len(shard.in_memory) >= loaded)
    world.weather.down = True
    world.run_for(2)
    world.weather.down = False
    world.run(lambda: world.ended(*ids), limit=120)
    assert world.of_type(store_events.ActorFailed) == []
    assert world.dead_letters() == []
    assert all(world.ledger.attempts(each, "once_more") == [1, 2] for each in ids[::2])
    assert all(world.ledger.attempts(each, "busy") == [1] for each in ids[1::2])


@pytest.mark.pain(39)
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
@pytest.mark.parametrize("shards", [1, 2])
def test_an_hour_that_the_servers_clock_jumps_moves_no_timer(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, step_ms: int, shards: int
) -> None:
    """Leases, heartbeats and entries of streams follow that clock; workers follow it slowly."""
    world = make_world(backs_off, works, sleeps, partitions=4, audited=False)
    world.share()
    for _ in range(shards):
        world.shard()
    world.run_for(20)
    began = world.clock.monotonic()
    for number in range(4):
        world.start(backs_off, f"b{number}", failures=1)
        world.start(sleeps, f"s{number}", seconds=25)
        world.start(works, f"w{number}", first=50.0)
    ended: dict[str, float] = {}

    def look() -> None:
        for each in (f"{kind}{number}" for kind in "bsw" for number in range(4)):
            if each not in ended and world.ended(each):
                ended[each] = world.clock.monotonic() - began

    world.checks.append(look)
    world.run_for(5)
    monkeypatch.setattr(time, "time", lambda: (world.clock.now_ms() + step_ms) / 1000)
    world.run(lambda: len(ended) == 12, limit=300)
    for number in range(4):
        assert world.ledger.attempts(f"b{number}", "patient") == [1, 2]
        assert world.ledger.attempts(f"s{number}", "busy") == [1]
        assert world.ledger.attempts(f"w{number}", "busy") == world.ledger.attempts(f"w{number}", "busy#2") == [1]
        assert ended[f"b{number}"] == pytest.approx(100, abs=0.5)
        assert ended[f"s{number}"] == pytest.approx(26, abs=0.5)
        assert ended[f"w{number}"] == pytest.approx(51, abs=0.5)
    assert world.dead_letters() == []
