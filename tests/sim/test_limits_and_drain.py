"""How much runs at once, also after a crash; and how a shard ends in good order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import Retry, flow, gather, sleep, step
from stepwell.actors import store_events
from stepwell.core import events
from stepwell.core.errors import Cancelled

MakeWorld = Callable[..., World]


@step
async def toil(seconds: float) -> float:
    await work(seconds)
    return seconds


@flow
async def job(seconds: float = 5.0) -> float:
    return await toil(seconds)


@flow
async def rests_first() -> float:
    await sleep(10)
    return await toil(1)


def running_executions(shard: SimShard) -> int:
    return len({execution_id for execution_id, _ in shard.runner.at_work})


class Watch:
    """The most executions that ran steps at once."""

    def __init__(self, world: World) -> None:
        self.most = 0
        self._world = world
        world.ledger.on_run.append(self._look)

    def _look(self, _run: object) -> None:
        self.most = max(self.most, max(running_executions(shard) for shard in self._world.shards))


@pytest.mark.pain(4)
def test_no_more_executions_run_than_may_and_queued_ones_run_later(make_world: MakeWorld) -> None:
    world = make_world(job, audited=False, partitions=1)
    watch = Watch(world)
    world.shard(max_running=3)
    for n in range(20):
        world.start(job, f"e{n}")
    world.run(lambda: watch.most == 3)
    assert len(world.statuses()["queued"]) == 17
    world.run()
    assert len(world.statuses()["completed"]) == 20
    assert watch.most == 3
    assert world.clock.monotonic() == pytest.approx(35)
    order = [int(run.execution_id[1:]) // 3 for run in world.ledger.runs]
    assert order == sorted(order), "first come, first served"


def test_a_queued_execution_can_be_cancelled_while_all_slots_are_taken(make_world: MakeWorld) -> None:
    world = make_world(job)
    world.shard(max_running=1)
    world.start(job, "busy", seconds=100)
    world.run(lambda: world.ledger.runs)
    world.start(job, "queued")
    world.run_for(1)
    command = world.cancel("queued")
    world.run(lambda: world.ended("queued"), limit=5)
    outcome = world.outcome("queued", command)
    assert outcome is not None
    assert outcome.applied
    world.run()
    assert world.ledger.of("queued") == []
    assert world.inbox() == []


def test_commands_to_running_executions_never_wait_for_a_slot(make_world: MakeWorld) -> None:
    @flow
    async def long() -> None:
        try:
            await gather(toil(1), sleep(10_000))
        except Cancelled:
            raise

    world = make_world(job, long)
    world.shard(max_running=1)
    world.start(long, "waits")
    world.run(lambda: world.status("waits") == "waiting")
    world.start(job, "busy", seconds=100)
    for n in range(10):
        world.start(job, f"q{n}")
    world.run(lambda: world.ledger.of("busy"))
    world.cancel("waits")
    world.run(lambda: world.ended("waits"), limit=5)


@pytest.mark.slow
@pytest.mark.pain(4)
def test_two_thousand_overdue_executions_come_back_within_the_limits(make_world: MakeWorld) -> None:
    world = make_world(rests_first, audited=False)
    watch = Watch(world)
    world.shard(max_running=5000)
    names = [f"e{n}" for n in range(2000)]
    for name in names:
        world.start(rests_first, name)
    world.run(lambda: len(world.statuses()["waiting"]) == 2000)
    world.crash()
    world.clock.advance(1000)
    watch.most = 0
    shard = world.shard(max_running=40)
    world.run(lambda: len(world.statuses()["completed"]) == 2000)
    assert watch.most <= 40
    assert len(world.ledger.runs) == 2000
    assert world.of_type(store_events.SweepFound) == []
    assert shard.in_memory == []


@pytest.mark.pain(4)
def test_running_executions_come_back_within_the_limits(make_world: MakeWorld) -> None:
    world = make_world(job, audited=False)
    watch = Watch(world)
    world.shard()
    for n in range(50):
        world.start(job, f"e{n}", seconds=20)
    world.run(lambda: len(world.ledger.runs) == 50)
    world.crash()
    watch.most = 0
    world.shard(max_running=7)
    world.run()
    assert watch.most == 7
    assert len(world.statuses()["completed"]) == 50
    assert world.of_type(store_events.SweepFound) == []


def test_sleepers_that_come_back_don_t_wait_until_a_slot_is_free(make_world: MakeWorld) -> None:
    world = make_world(job, rests_first)
    world.shard()
    for n in range(4):
        world.start(job, f"long{n}", seconds=1000)
    world.start(rests_first, "sleeper")
    world.run(lambda: len(world.ledger.runs) == 4 and world.status("sleeper") == "waiting")
    world.crash()
    world.shard(max_running=3)
    world.run(lambda: world.ended("sleeper"))
    assert world.clock.monotonic() == pytest.approx(11, abs=0.1)
    assert len(world.ledger.runs) == 4 + 3 + 1, "the fourth long one waits for a slot"


@pytest.mark.pain(35)
def test_a_drain_lets_running_steps_end_begins_nothing_and_does_not_wait_for_sleepers(make_world: MakeWorld) -> None:
    @flow
    async def two_steps() -> list[float]:
        return [await toil(5), await toil(6)]

    world = make_world(two_steps, rests_first, job)
    shard = world.shard()
    world.start(two_steps, "working")
    world.start(rests_first, "sleeping")
    world.run(lambda: world.ledger.of("working"))
    shard.drain()
    world.start(job, "late")
    world.run_for(5.5)
    assert shard.runner.running == 0
    assert [s["status"] for s in world.show("working")["steps"]] == ["completed", "running"]
    assert [run.execution_id for run in world.ledger.runs] == ["working"]
    shard.release()
    assert world.status("late") == "queued"
    assert world.status("sleeping") == "waiting"
    world.shard()
    world.run()
    assert {world.status(each) for each in ("working", "sleeping", "late")} == {"completed"}
    assert world.ledger.attempts("working", "toil") == [1]
    assert world.ledger.attempts("working", "toil#2") == [1]
    assert [s["interruptions"] for s in world.show("working")["steps"]] == [0, 0]


@pytest.mark.pain(35)
def test_an_attempt_that_a_drain_cut_short_is_not_billed(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=1))
    async def once() -> str:
        await work(100)
        return "done"

    @flow
    async def f() -> str:
        return await once()

    world = make_world(f)
    shard = world.shard()
    world.start(f, "e1")
    for _ in range(12):  # more often than an interrupted step may be cut short
        world.run_for(10)
        shard.drain()
        world.settle()
        shard.release()
        shard = world.shard()
    world.run_for(10)
    world.crash()
    world.shard()
    world.run()
    [of_step] = world.show("e1")["steps"]
    assert (of_step["status"], of_step["interruptions"], of_step["drains"]) == ("completed", 13, 12)
    assert set(world.ledger.attempts("e1", "once")) == {1}
    told = world.of_type(events.StepInterrupted)
    assert [(each.cause, each.interruptions) for each in told] == [*(("drain", n) for n in range(1, 13)), ("crash", 13)]
    assert {(each.attempt, each.set_apart) for each in told} == {(1, False)}, "one crash blames nobody yet"


@pytest.mark.pain(35)
@pytest.mark.parametrize("box", ["read", "unread"])
def test_what_a_drain_has_told_no_crash_tells_again(make_world: MakeWorld, box: str) -> None:
    world = make_world(job)
    world.parents = box == "read"
    shard = world.shard()
    world.start(job, "e1", seconds=100)
    world.run(lambda: world.ledger.runs)
    shard.drain()
    shard.cut_short()
    world.crash()  # before the partitions are given back
    world.shard()
    world.run_for(10)
    assert [each.cause for each in world.of_type(events.StepInterrupted)] == ["drain"]
    world.crash()
    world.shard()
    world.run()
    assert [each.cause for each in world.of_type(events.StepInterrupted)] == ["drain", "crash"]
    [of_step] = world.show("e1")["steps"]
    assert (of_step["status"], of_step["interruptions"]) == ("completed", 2)


def test_a_cancelled_step_that_a_drain_cut_short_is_cancelled_by_the_next_owner(make_world: MakeWorld) -> None:
    world = make_world(job)
    shard = world.shard()
    world.start(job, "e1", seconds=100)
    world.run(lambda: world.ledger.runs)
    world.cancel("e1")
    world.run_for(1)
    assert world.status("e1") == "running"
    shard.drain()
    world.settle()
    shard.release()
    world.shard()
    world.run(lambda: world.ended("e1"), limit=30)
    assert world.status("e1") == "cancelled"
    assert len(world.ledger.runs) == 1


@flow
async def rests_nine() -> float:
    await sleep(9.3)
    return await toil(1)


@pytest.mark.parametrize("rests", [False, True])
def test_no_row_is_gone_on_with_and_no_step_begins_on_a_lease_that_may_have_lapsed(
    make_world: MakeWorld, rests: bool
) -> None:
    world = make_world(job, rests_nine)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    shard = world.shard()
    if rests:
        world.start(rests_nine, "e1")
    world.run_for(0.1)
    shard.paused.update({"leases", "reader"})
    world.run_for(9.3)  # not renewed for longer than it may be relied on, yet the server still has it
    if not rests:
        world.start(job, "e1", seconds=1)
    shard.paused.discard("reader")
    world.run_for(0.2)
    assert world.ledger.runs == []
    assert world.status("e1") == ("running" if rests else "queued")
    shard.paused.clear()
    world.run(lambda: world.ended("e1"))
    assert len(world.ledger.runs) == 1


@pytest.mark.pain(9, 40)
def test_a_zombie_that_comes_back_after_its_lease_lapsed_writes_nothing(make_world: MakeWorld) -> None:
    world = make_world(job, audited=False)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    zombie = world.shard()
    world.start(job, "e1", seconds=30)
    world.run(lambda: world.ledger.runs)
    world.shards.remove(zombie)  # it is stopped
    heir = world.shard()
    world.run(lambda: len(world.ledger.runs) == 2)
    assert world.ledger.runs[1].epoch > world.ledger.runs[0].epoch
    world.shards.append(zombie)  # and goes on
    world.run(lambda: world.ended("e1"))
    world.run_for(30)
    writers = {sent.request.lease for sent in world.sent if sent.done and getattr(sent.reply, "dup", None) is False}
    assert {lease.split("|")[0] for lease in writers} == {"winc1", "winc2"}
    assert world.show("e1")["steps"][0]["interruptions"] == 1
    done = [s for s in world.sent if getattr(s.request, "status_to", "") == "completed" and s.done]
    assert [s.request.lease.split("|")[0] for s in done if type(s.reply).__name__ == "Committed"] == ["winc2"]
    assert zombie.in_memory == []
    assert heir.in_memory == []


@pytest.mark.parametrize("order", ["start first", "signal at once", "signal before a slot is free"])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_command_to_queued_executions_opens_no_way_around_the_limit(
    make_world: MakeWorld, order: str, seed: int | None
) -> None:
    world = make_world(job, audited=False, partitions=1, seed=seed)
    watch = Watch(world)
    world.shard(max_running=1)
    world.start(job, "busy", seconds=100.0)
    world.run(lambda: world.ledger.runs)
    names = [f"e{n}" for n in range(10)]
    for name in names:
        world.start(job, name)
        if order == "signal at once":
            world.signal(name, "hello", 1)
    if order != "signal at once":
        world.run_for(1 if order == "start first" else 99.9)
        for name in names:
            world.signal(name, "hello", 1)
    world.run(lambda: world.ended("busy", *names))
    assert watch.most == 1
    assert world.clock.monotonic() == pytest.approx(150, abs=1)
    assert world.inbox() == []


def test_further_doorbells_of_queued_executions_are_let_in_too_and_harm_nobody(make_world: MakeWorld) -> None:
    world = make_world(job, audited=False, partitions=1)
    watch = Watch(world)
    shard = world.shard(max_running=2)
    names = [f"e{n}" for n in range(8)]
    for name in names:
        world.start(job, name)
        for _ in range(2):
            bell = {"type": "start", "execution": name, "at": "1", "v": "1"}
            world.client.xadd(world.keys.inbox(0), bell)
    world.run(lambda: world.ended(*names))
    world.run_for(1)
    assert watch.most == 2
    assert len(world.ledger.runs) == 8
    assert world.inbox() == []
    assert world.of_type(store_events.SweepFound) == []
    assert world.dead_letters() == []
    assert shard.in_memory == []
