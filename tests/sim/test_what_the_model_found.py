"""Schedules that the model checker found (docs/model.md), on the product itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import SimShard, World
from sim.tail import Tail

from stepwell import flow, step
from stepwell.actors import store_events
from stepwell.store.requests import Commit, Load, Request

MakeWorld = Callable[..., World]


@step
async def name_it(number: int, seconds: float = 0.0) -> str:
    await work(seconds)
    return str(number)


@flow
async def two(seconds: float = 0.0) -> list[str]:
    return [await name_it(1, seconds), await name_it(2, seconds)]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world(two, audited=False, partitions=1)
    made.lease_ttl_ms, made.renew_seconds = 10_000, 3.0
    return made


def cut_off(shard: SimShard) -> None:
    shard.paused.update({"leases", "mirror", "reader"})


def test_what_was_loaded_under_one_grant_begins_nothing_under_the_next_one(world: World) -> None:
    shard = world.shard()

    def judge(request: Request) -> str | None:
        if isinstance(request, Commit):
            shard.paused.add("mirror")
            return "lost"
        return None

    shard.judge(judge)
    loads: list[int] = []
    world.ledger.on_run.append(lambda _run: loads.append(sum(isinstance(sent.request, Load) for sent in world.sent)))
    world.start(two, "e1")
    world.settle()
    shard.judge(lambda _request: None)
    shard.mirror.run_once(0.0)
    # Another one had the partition for a moment; the actor has not heard of it, and its commit's reply is in its mail.
    part = world.keys.parts[0]
    world.client.delete(part.lease)
    old = shard.holdings.grant(0)
    assert old is not None
    world.client.set(part.epoch, old.epoch + 1)
    shard.leases.round()
    new = shard.holdings.grant(0)
    assert new is not None
    assert new.epoch > old.epoch
    while shard.scheduler.step() or shard.runner.step():
        shard.runner.step()
    shard.paused.clear()
    world.run(lambda: world.ended("e1"))
    assert loads[0] == 2, "it was read again before anything of it began"


def test_who_was_granted_later_wins_though_redis_forgot_that_grant(world: World) -> None:
    """A frozen owner comes back just when Redis has forgotten that there is a new one, and goes on where it was."""
    tail = Tail(world)
    frozen = world.shard()
    world.start(two, "e1", seconds=11)
    world.run(lambda: world.ledger.runs)
    cut_off(frozen)
    world.run_for(9.9)
    tail.mark()
    world.run_for(0.2)
    heir = world.shard()
    world.run(lambda: len(world.ledger.runs) == 2)
    cut_off(heir)
    tail.lose(2.0)
    frozen.paused.clear()
    world.run_for(1.5)  # its body has returned: it is recorded
    frozen_rev = int(world.row("e1")["rev"])
    cut_off(frozen)
    heir.paused.clear()
    world.run(lambda: world.ended("e1"), limit=60)
    assert int(world.row("e1")["rev"]) > frozen_rev
    assert world.of_type(store_events.Healed) == [store_events.Healed("e1")]
    assert world.of_type(store_events.RowDiverged) == []


def test_a_grant_that_was_given_back_is_never_taken_up_again(world: World) -> None:
    tail = Tail(world)
    shard = world.shard()
    world.settle()
    first = shard.holdings.grant(0)
    assert first is not None
    tail.mark()
    shard.leases._turns[0] = 1
    shard.leases._quiet.append((0, 1))
    shard.leases._release_quiet()
    tail.lose()
    assert world.client.get(world.keys.parts[0].lease) == first.value.encode()
    world.run_for(8)
    again = shard.holdings.grant(0)
    assert again is not None
    assert again.epoch > first.epoch


def test_a_loss_after_a_repeated_commit_is_noticed(world: World) -> None:
    tail = Tail(world)
    shard = world.shard()

    def judge(request: Request) -> str | None:
        if isinstance(request, Commit) and request.ended:
            tail.mark()
        if isinstance(request, Commit) and request.ended and request.commit_id not in lost:
            lost.append(request.commit_id)
            return "lost"
        return None

    lost: list[str] = []
    shard.judge(judge)
    world.start(two, "e1")
    world.run_for(1)
    assert world.ended("e1")
    assert shard.in_memory == []
    tail.lose()
    assert not world.ended("e1")
    world.run_for(4)
    assert world.of_type(store_events.Healed) == [store_events.Healed("e1")]
    assert len(world.ledger.runs) == 2
