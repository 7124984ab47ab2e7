"""Two versions of the runtime share one Redis, as in an upgrade and in its rollback: nothing is lost or misread."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import Retry, flow, step, wait_for
from stepwell.actors import store_events
from stepwell.actors.ingress import CLAIM_IDLE_MS
from stepwell.core.formats import FORMAT
from stepwell.core.ownership import owners

MakeWorld = Callable[..., World]
PARTITIONS = 8
NEWER = FORMAT + 1


@step(retry=Retry(max_attempts=2))
async def toil(seconds: float) -> float:
    await work(seconds)
    return seconds


@flow
async def job(seconds: float = 0.5, steps: int = 5) -> int:
    for _ in range(steps):
        await toil(seconds)
    return steps


@flow
async def asks() -> object:
    return [await wait_for("answer"), await toil(0.1)]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    world = make_world(job, asks, partitions=PARTITIONS)
    world.share()
    return world


def start_newer(world: World, started: object, execution_id: str, **given: object) -> None:
    """What a client of the newer version does."""
    world.start(started, execution_id, **given)  # type: ignore[arg-type]
    meta = msgspec.json.decode(world.row(execution_id)["meta"])
    world.client.hset(world.keys.row(execution_id), "meta", msgspec.json.encode({**meta, "format": NEWER}))


def owned_by(world: World, *shards: SimShard) -> bool:
    return world.owners() == owners(PARTITIONS, [shard.shard_id for shard in shards])


def ran_once(world: World) -> bool:
    return set(Counter((run.execution_id, run.path) for run in world.ledger.runs).values()) == {1}


def left_alone(world: World) -> list[str]:
    return [event.kind for event in world.of_type(store_events.LeftAlone)]


@pytest.mark.pain(47)
def test_a_command_of_a_newer_version_waits_for_a_newer_worker(world: World, caplog: pytest.LogCaptureFixture) -> None:
    old = world.shard(shard_id="old/0")
    world.start(asks, "e1")
    world.start(job, "e2")
    world.run(lambda: world.ended("e2"))
    for number in range(2):
        world.send("signal", "e1", {"name": "answer", "payload": number}, v=str(NEWER))
    old.context.mirror.wake()
    world.run_for(40)  # several sweeps
    assert world.status("e1") == "waiting"
    assert [entry["v"] for entry in world.inbox()] == [str(NEWER)] * 2
    assert world.dead_letters() == []
    assert left_alone(world) == ["entry", "entry"]
    assert caplog.text.count("has format 2, and this version reads up to 1") == 1
    assert world.of_type(store_events.SweepFound) == []
    assert old.context.newer.count == 2
    world.shard(shard_id="new/0", reads=NEWER)
    world.run(lambda: world.ended("e1"), limit=30)
    assert world.show("e1")["result"] == [0, 0.1]
    assert world.inbox() == []
    assert old.context.newer.count == 0


@pytest.mark.pain(47)
def test_a_newer_row_and_what_is_sent_to_it_waits_for_a_newer_worker(world: World) -> None:
    old = world.shard(shard_id="old/0")
    start_newer(world, asks, "e1")
    before = world.row("e1")
    world.signal("e1", "answer", 7)
    world.run_for(40)
    assert world.row("e1") == before
    assert [entry["type"] for entry in world.inbox()] == ["start", "signal"]
    assert (world.dead_letters(), left_alone(world), old.in_memory) == ([], ["row"], [])
    assert world.of_type(store_events.SweepFound) == []
    world.shard(shard_id="new/0", reads=NEWER)
    world.run(lambda: world.ended("e1"), limit=30)
    assert world.show("e1")["result"] == [7, 0.1]
    assert msgspec.json.decode(world.row("e1")["meta"])["format"] == NEWER
    assert world.inbox() == []


@pytest.mark.pain(47)
def test_older_shards_hand_over_stand_by_and_take_over_again_after_a_rollback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    olds = [world.shard(shard_id=name) for name in ("a/0", "b/0")]
    world.run(lambda: owned_by(world, *olds), limit=5)
    names = [f"e{number}" for number in range(24)]
    for name in names:
        world.start(job, name, steps=30)
    world.run(lambda: len(world.ledger.runs) > 50)
    new = world.shard(shard_id="c/0", reads=NEWER)
    world.run(lambda: owned_by(world, new), limit=30)
    world.run_for(5)
    assert owned_by(world, new)
    assert all(old.leases.stands_by and old.leases.outdated for old in olds)
    assert caplog.text.count("hands its partitions over and stands by; upgrade it") == 2
    start_newer(world, asks, "newer")
    world.run(lambda: world.status("newer") == "waiting")
    # The rollback: the newer one finds others to hand over to, though they don't share with it.
    assert sorted(new.leases._membership.heirs) == ["a/0", "b/0"]
    new.leave()
    world.run(lambda: not new.holdings.partitions(), limit=10)
    new.release()
    world.run(lambda: owned_by(world, *olds), limit=10)
    before = world.row("newer")
    world.signal("newer", "answer", 1)
    world.run(lambda: world.ended(*names), limit=60)
    assert caplog.text.count("this shard takes partitions again") == 2
    assert world.row("newer") == before
    assert [entry["execution"] for entry in world.inbox()] == ["newer"]
    assert ran_once(world)
    world.shard(shard_id="c/0", reads=NEWER)
    world.run(lambda: world.ended("newer"), limit=30)
    assert world.show("newer")["result"] == [1, 0.1]
    assert world.dead_letters() == []


@pytest.mark.pain(47)
def test_what_the_end_of_a_newer_shard_interrupted_is_told_to_the_next_newer_one(world: World) -> None:
    """Though an older one, which could not see to it, owned the partition in between."""
    new = world.shard(shard_id="new/0", reads=NEWER)
    start_newer(world, job, "e1", seconds=60)
    world.run(lambda: len(world.ledger.runs) == 1)
    world.crash(new)
    old = world.shard(shard_id="old/0")
    world.run(lambda: owned_by(world, old), limit=30)
    world.run_for(10)
    assert left_alone(world) == ["row"]
    new = world.shard(shard_id="new/0", reads=NEWER)
    world.run(lambda: owned_by(world, new), limit=30)
    world.run(lambda: world.ended("e1"))
    assert [each["interruptions"] for each in world.show("e1")["steps"]] == [1, 0, 0, 0, 0]


@pytest.mark.pain(47)
def test_no_strikes_bury_or_park_what_only_a_newer_version_can_read(world: World) -> None:
    world.parents = True
    start_newer(world, asks, "e1")
    partition = world.keys.partition_of("e1")
    entry = world.client.xadd(world.keys.inbox(partition), {"v": str(NEWER), "other": "layout"}).decode()  # type: ignore[union-attr]
    strikes = dict.fromkeys(("x:e1", f"e:{entry}"), "3|ab|died")
    world.client.hset(world.keys.suspects(partition), mapping=strikes)
    before = world.row("e1")
    world.shard(shard_id="old/0")
    world.run_for(20)
    assert sorted(left_alone(world)) == ["entry", "row"]
    assert world.row("e1") == before
    assert world.dead_letters() == []
    assert len(world.inbox()) == 2
    assert world.client.hlen(world.keys.suspects(partition)) == 2, "for the newer one to see"


@pytest.mark.pain(47)
def test_an_entry_of_the_ingress_of_a_newer_version_waits_for_a_newer_worker(world: World) -> None:
    olds = [world.shard(shard_id=name, ingress=True) for name in ("a/0", "b/0")]
    newer = {"type": "start", "flow": "job", "id": "later", "input": "{}", "v": str(NEWER)}
    world.client.xadd(world.keys.ingress, newer)  # type: ignore[arg-type]
    world.client.xadd(world.keys.ingress, {"type": "start", "flow": "job", "id": "now", "input": "{}"})
    world.run(lambda: world.ended("now"))
    world.run_for(3 * CLAIM_IDLE_MS / 1000)
    assert world.client.xlen(world.keys.ingress) == 1
    assert (world.dead_letters(), world.status("later")) == ([], "")
    assert set(left_alone(world)) == {"ingress"}
    assert len(left_alone(world)) <= len(olds), "each tells of it once"
    world.shard(shard_id="c/0", reads=NEWER, ingress=True)
    world.run(lambda: world.ended("later"), limit=3 * CLAIM_IDLE_MS / 1000)
    assert world.client.xlen(world.keys.ingress) == 0


@pytest.mark.pain(47)
def test_older_shards_leave_the_ingress_to_newer_ones(world: World) -> None:
    old = world.shard(shard_id="old/0", ingress=True)
    new = world.shard(shard_id="new/0", reads=NEWER, ingress=True)
    world.run(lambda: owned_by(world, new), limit=30)
    new.paused.add("ingress")
    world.client.xadd(world.keys.ingress, {"type": "start", "flow": "job", "id": "e1", "input": "{}"})
    world.run_for(10)
    assert (old.leases.outdated, world.status("e1")) == (True, "")
    new.paused.clear()
    world.run(lambda: world.ended("e1"))
