"""What waits for long leaves memory, and comes back on time or when it is addressed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sim.bodies import Run, work
from sim.counts import dispatcher
from sim.harness import World
from sim.test_replies import part, take_away

from stepwell import Retry, current_step, flow, gather, sleep, step, wait_for
from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.inbox import CLOCK_SLACK_MS
from stepwell.core.limits import Limits
from stepwell.store.requests import Load

MakeWorld = Callable[..., World]


@step
async def note(word: object) -> object:
    await work(1)
    return word


@step(retry=Retry(max_attempts=3, base=600, factor=2, cap=3600, jitter=0))
async def fails_twice() -> int:
    await work(1)
    if current_step().attempt < 3:
        raise ConnectionError("down")
    return current_step().attempt


@flow
async def sleeps(seconds: float = 3600) -> object:
    try:
        await note("first")
        await sleep(seconds)
        return await note("last")
    finally:
        await note("cleanup")


@flow
async def backs_off() -> int:
    return await fails_twice()


@flow
async def listens() -> object:
    return await note(await wait_for("word"))


@flow
async def works() -> object:
    return await note("worked")


def loads(world: World) -> list[str]:
    """The executions whose rows were read, in order."""
    return [sent.request.execution_id for sent in world.sent if isinstance(sent.request, Load)]


def count(world: World, status: str) -> int:
    return sum(world.client.zcard(part.by[status]) for part in world.keys.parts)


@pytest.mark.pain(38, 54)
def test_a_long_sleep_is_out_of_memory_runs_nobodys_code_and_ends_on_time(make_world: MakeWorld) -> None:
    world = make_world(sleeps)
    shard = world.shard()
    world.start(sleeps, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    world.settle()
    assert shard.in_memory == []
    due = world.show("e1")["open"]["sleep"]["due_at"]
    world.run_for(3000)
    assert shard.in_memory == []
    assert world.of_type(store_events.ExecutionsCounted)[-1].sizes["waiting"] == 1, "people see it all the same"
    assert [run.path for run in world.ledger.runs] == ["note"], "leaving memory is no end: no cleanup ran"
    world.run(lambda: len(world.ledger.runs) == 2)
    assert world.clock.now_ms() == due
    world.run()
    assert world.show("e1")["result"] == "last"
    assert [run.path for run in world.ledger.runs] == ["note", "note#2", "note#3"]
    assert world.of_type(store_events.SweepFound) == []


@pytest.mark.pain(25, 38)
def test_a_long_backoff_is_out_of_memory_and_each_attempt_comes_on_time_with_its_number(make_world: MakeWorld) -> None:
    world = make_world(backs_off)
    shard = world.shard()
    world.start(backs_off, "e1")
    world.run_for(300)
    assert shard.in_memory == []
    world.run()
    assert world.show("e1")["result"] == 3
    first, second, third = world.ledger.of("e1")
    assert [first.attempt, second.attempt, third.attempt] == [1, 2, 3]
    assert second.at_ms == first.at_ms + 601_000
    assert third.at_ms == second.at_ms + 1_201_000
    assert world.of_type(store_events.SweepFound) == []


def test_what_waits_for_something_untimed_leaves_after_a_while_and_comes_when_it_is_addressed(
    make_world: MakeWorld,
) -> None:
    world = make_world(listens)
    shard = world.shard()
    world.start(listens, "e1")
    world.start(listens, "e2")
    world.run_for(20)
    assert sorted(shard.in_memory) == ["e1", "e2"]
    for _ in range(3):
        world.run_for(10)
    assert shard.in_memory == []
    world.signal("e1", "word", "go")
    command = world.cancel("e2")
    world.run()
    assert world.show("e1")["result"] == "go"
    assert world.status("e2") == "cancelled"
    outcome = world.outcome("e2", command)
    assert outcome is not None
    assert outcome.applied


@pytest.mark.pain(38)
def test_a_new_owner_reads_no_row_of_what_is_not_due_and_all_end_on_time(make_world: MakeWorld) -> None:
    world = make_world(sleeps, listens)
    world.shard()
    for n in range(40):
        world.start(sleeps, f"s{n}", seconds=100 + n)
        world.start(listens, f"w{n}")
    world.run(lambda: count(world, "waiting") == 80)
    world.crash()
    world.sent.clear()
    shard = world.shard()
    world.settle()
    assert loads(world) == []
    assert shard.in_memory == []
    dues = {f"s{n}": world.show(f"s{n}")["open"]["sleep"]["due_at"] for n in range(40)}
    world.run(lambda: count(world, "completed") == 40)
    assert {each: world.ledger.of(each, "note#2")[0].at_ms for each in dues} == dues
    assert sorted(loads(world)) == sorted(dues)
    assert world.of_type(store_events.SweepFound) == []


@pytest.mark.pain(4, 38)
def test_what_fell_due_while_nobody_was_there_comes_in_due_order_within_the_limit(make_world: MakeWorld) -> None:
    world = make_world(sleeps, audited=False)
    world.shard()
    for n in range(40):
        world.start(sleeps, f"s{n}", seconds=200 - n)
    world.run(lambda: count(world, "waiting") == 40)
    world.crash()
    world.clock.advance(1000)
    world.sent.clear()
    world.shard(max_running=5)
    world.run()
    assert count(world, "completed") == 40
    assert loads(world) == [f"s{n}" for n in reversed(range(40))]


@pytest.mark.parametrize("kind", ["short sleeps", "signals"])
def test_where_more_are_in_memory_than_may_those_that_rest_longest_leave(make_world: MakeWorld, kind: str) -> None:
    world = make_world(sleeps, listens, works)
    shard = world.shard(limits=Limits(in_memory=5))
    for n in range(20):
        if kind == "signals":
            world.start(listens, f"e{n}")
        else:
            world.start(sleeps, f"e{n}", seconds=20)
        world.run_for(0.01)
    world.run(lambda: count(world, "waiting") == 20)
    world.settle()
    assert sorted(shard.in_memory) == [f"e{n}" for n in range(15, 20)]
    if kind == "signals":
        for n in range(20):
            world.signal(f"e{n}", "word", n)
    world.run()
    assert count(world, "completed") == 20
    assert world.of_type(store_events.SweepFound) == []
    if kind != "signals":
        for n in range(20):
            woke, slept = (world.ledger.of(f"e{n}", path)[0] for path in ("note#2", "note"))
            assert slept.ended_ms is not None
            assert woke.at_ms == slept.ended_ms + 20_000, "also those that were out of memory are on time"


def test_who_runs_steps_is_never_sent_out_of_memory(make_world: MakeWorld) -> None:
    @flow
    async def long() -> object:
        return await gather(*[note(n) for n in range(3)])

    world = make_world(long)
    shard = world.shard(limits=Limits(in_memory=2))
    for n in range(10):
        world.start(long, f"e{n}")
    world.run(lambda: len(world.ledger.runs) == 30)
    world.run_for(0.5)
    assert len(shard.in_memory) == 10
    world.run()
    assert count(world, "completed") == 10
    assert len(loads(world)) == 10


@pytest.mark.pain(39)
@pytest.mark.parametrize("set_back_s", [3600, 5])
def test_after_the_servers_clock_was_set_back_due_times_of_what_is_cold_are_put_right(
    make_world: MakeWorld, set_back_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert set_back_s * 1000 > CLOCK_SLACK_MS
    world = make_world(sleeps, audited=False)
    world.shard()
    world.start(sleeps, "e1", seconds=300)
    world.run(lambda: world.status("e1") == "waiting")
    world.run_for(1)
    world.crash()
    began = world.clock.monotonic()
    world.clock._start_ms -= set_back_s * 1000
    with caplog.at_level(logging.WARNING):
        shard = world.shard()
        world.settle()
    assert "was set back" in caplog.text
    due = world.show("e1")["open"]["sleep"]["due_at"]
    assert due <= world.clock.now_ms() + 300_000
    assert shard.in_memory == [], "once its due time is right it can wait out of memory"
    world.run(lambda: len(world.ledger.runs) == 2)
    assert world.clock.monotonic() <= began + 300.01


@pytest.mark.pain(57)
def test_what_leaves_in_the_moment_in_which_it_falls_due_comes_back_at_once(make_world: MakeWorld) -> None:
    world = make_world(sleeps)
    shard = world.shard(limits=Limits(in_memory=1))
    world.start(sleeps, "e1", seconds=25)
    world.run(lambda: world.status("e1") == "waiting")
    world.settle()
    due = world.show("e1")["open"]["sleep"]["due_at"]
    world.run_for((due - world.clock.now_ms()) / 1000 - 5.2)
    assert shard.in_memory == ["e1"]
    for n in range(3):
        world.start(sleeps, f"other{n}", seconds=25)
    shard.reader.run_once(None)
    world.run_for(0.25)
    world.run(lambda: world.ledger.of("e1", "note#2"))
    assert world.clock.now_ms() == due


def test_three_hundred_executions_that_fall_due_together_are_all_on_time(make_world: MakeWorld) -> None:
    world = make_world(sleeps, audited=False)
    world.shard(limits=Limits(running=5000, steps=5000))
    for n in range(300):
        world.start(sleeps, f"s{n}", seconds=100)
    world.run(lambda: count(world, "waiting") == 300)
    world.run(lambda: count(world, "completed") == 300)
    late = [run.at_ms - (first.ended_ms or 0) - 100_000 for run, first in runs_after_sleep(world)]
    assert len(late) == 300
    assert max(late) == 0


def runs_after_sleep(world: World) -> list[tuple[Run, Run]]:
    firsts = {run.execution_id: run for run in world.ledger.runs if run.path == "note"}
    return [(run, firsts[run.execution_id]) for run in world.ledger.runs if run.path == "note#2"]


@pytest.mark.pain(57)
@pytest.mark.parametrize("how", ["for good", "and was got again"])
def test_who_was_granted_to_leave_as_it_fell_due_leaves_when_its_partition_goes(
    make_world: MakeWorld, how: str
) -> None:
    """What it had begun to write by then is fenced, and nobody knows of it any more but who waits with that."""
    world = make_world(sleeps)
    shard = world.shard()
    world.start(sleeps, "e1", seconds=20)
    world.run(lambda: world.status("e1") == "waiting")
    world.settle()
    ref, partition = shard.ref("e1"), world.keys.partition_of("e1")
    assert ref is not None
    ref.tell(m.Passivate())
    shard.scheduler.step()  # it asks, and the shard gets no turn until it is due
    world.clock.advance(30)
    shard.paused.add("mirror")
    world.settle()
    assert shard.in_memory == ["e1"]
    assert ref not in [route.ref for route in dispatcher(shard)._routes.values()], "nobody would tell it"
    take_away(world)
    if how == "and was got again":
        shard.leases._due = 0.0
        world.settle()
        world.client.delete(part(world).lease)
        shard.leases._due = 0.0
        world.settle()
        assert shard.holdings.lease(partition) is not None
    shard.paused.clear()
    world.settle()
    if how == "for good":
        assert shard.in_memory == []
        assert world.status("e1") == "waiting", "it has written nothing"
        return
    assert shard.ref("e1") is not ref, "the one that it has now read the row"
    world.run()
    assert shard.in_memory == []
    assert world.ledger.attempts("e1", "note#2") == [1]
