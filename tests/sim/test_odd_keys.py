"""Keys that are not what they should be: a row of a foreign type, a list that names an execution without a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import flow, step, wait_for
from stepwell.actors import store_events
from stepwell.store.inbox import InboxStore
from stepwell.store.replies import Broken
from stepwell.store.requests import Load

MakeWorld = Callable[..., World]


@step
async def toil() -> int:
    await work(1)
    return 1


@flow
async def job() -> int:
    return await toil()


@flow
async def listens() -> object:
    return await wait_for("word")


FOREIGN: dict[str, Callable[[World, str], object]] = {
    "string": lambda world, key: world.client.set(key, "x"),
    "list": lambda world, key: world.client.rpush(key, "x"),
    "stream": lambda world, key: world.client.xadd(key, {"a": "b"}),
}


def ring(world: World, execution_id: str) -> None:
    """Put a doorbell into the inbox, as `create` does."""
    partition = world.keys.partition_of(execution_id)
    fields: dict[str, str | bytes | int] = {"type": "start", "execution": execution_id, "at": 1, "v": "1"}
    InboxStore(world.client, world.keys, world.scripts).send(partition, fields)


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("found_by", ["a doorbell", "a command", "a list"])
def test_a_foreign_key_in_place_of_a_row_holds_no_slot(make_world: MakeWorld, kind: str, found_by: str) -> None:
    world = make_world(job, audited=False, partitions=1)
    FOREIGN[kind](world, world.keys.row("odd"))
    command = ""
    if found_by == "a doorbell":
        ring(world, "odd")
    elif found_by == "a command":
        command = world.signal("odd", "word", 1)
    else:
        world.client.zadd(world.keys.live(0), {"odd": 0})
    world.shard(max_running=1)
    for n in range(5):
        world.start(job, f"e{n}")
    world.run(lambda: world.ended(*[f"e{n}" for n in range(5)]), limit=10)
    letters = world.dead_letters()
    if found_by == "a list":
        assert letters == []
    else:
        [letter] = letters
        assert world.keys.row("odd") in letter["reason"]
        assert "WRONGTYPE" in letter["reason"]
    if command:
        outcome = world.outcome("odd", command)
        assert outcome is not None
        assert not outcome.applied
    assert world.inbox() == []


def test_a_foreign_key_that_is_listed_is_looked_at_by_sweeps_only(make_world: MakeWorld) -> None:
    world = make_world(job, audited=False, partitions=1)
    world.client.set(world.keys.row("odd"), "x")
    world.client.zadd(world.keys.live(0), {"odd": 0})
    shard = world.shard(max_running=1)
    loads: list[float] = []
    shard.judge(lambda request: loads.append(world.clock.monotonic()) if isinstance(request, Load) else None)
    for _ in range(60):
        world.run_for(1)
    assert 2 <= len(loads) <= 13
    assert all(later - earlier >= 5 for earlier, later in itertools.pairwise(loads))
    world.client.delete(world.keys.row("odd"))
    world.start(job, "odd")
    world.run(lambda: world.ended("odd"), limit=10)


def test_a_letter_that_can_t_be_buried_is_logged_once_with_the_key_that_is_in_its_way(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(job, audited=False, partitions=1)
    world.client.set(world.keys.dead(0), "x")
    world.shard()
    for _ in range(2):
        world.send("explode", "e1")
    world.run_for(30)
    [line] = [each for each in caplog.records if "can't be buried" in each.getMessage()]
    assert line.levelname == "ERROR"
    assert f"{world.keys.dead(0)!r} in Redis is a string" in line.getMessage()
    assert "rename or delete it" in line.getMessage()
    world.client.delete(world.keys.dead(0))
    world.run(lambda: len(world.dead_letters()) == 2 and world.inbox() == [], limit=30)
    world.client.rename(world.keys.dead(0), "elsewhere")
    world.client.set(world.keys.dead(0), "x")
    world.send("explode", "e1")
    world.run_for(30)
    assert caplog.text.count("can't be buried") == 2, "it was mended in between"


def test_rows_that_can_t_be_read_for_long_hold_no_slot_and_lose_nothing(make_world: MakeWorld) -> None:
    world = make_world(job, partitions=1)
    shard = world.shard(max_running=1)
    shard.judge(
        lambda request: (
            Broken("NOPERM no permissions to access a key")
            if isinstance(request, Load) and request.execution_id.startswith("odd") and world.clock.monotonic() < 60
            else None
        )
    )
    for n in range(3):
        world.start(job, f"odd{n}")
    world.start(job, "good")
    world.run(lambda: world.ended("good"), limit=10)
    world.run(lambda: world.ended("odd0", "odd1", "odd2"), limit=90)
    assert world.dead_letters() == []


@pytest.mark.parametrize("found_by", ["a sweep", "a takeover"])
def test_an_execution_that_is_listed_and_has_no_row_is_found_once(make_world: MakeWorld, found_by: str) -> None:
    world = make_world(listens, audited=False, partitions=1)
    shard = world.shard()
    world.start(listens, "kept")
    world.run()
    if found_by == "a takeover":
        world.crash(shard)
    for name in ("live", "by:waiting"):
        world.client.zadd(f"{{{world.keys.namespace}:0}}:{name}", {"ghost": 1})
    if found_by == "a takeover":
        world.shard()
    for _ in range(60):
        world.run_for(1)
    assert world.of_type(store_events.RowMissing) == [store_events.RowMissing("ghost")]
    assert len(world.of_type(store_events.SweepFound)) == (found_by == "a sweep")
    assert world.statuses()["waiting"] == ["kept"]
    assert world.client.zrange(world.keys.live(0), 0, -1) == [b"kept"]
    world.signal("kept", "word", 7)
    world.run(lambda: world.ended("kept"))


def test_a_row_that_is_made_while_it_is_taken_off_the_lists_stays_listed(make_world: MakeWorld) -> None:
    world = make_world(listens, audited=False, partitions=1)
    shard = world.shard()
    world.client.zadd(world.keys.live(0), {"late": 1})
    made: list[object] = []

    def judge(request: object) -> None:
        if type(request).__name__ == "Unlist" and not made:
            made.append(world.start(listens, "late"))

    shard.judge(judge)
    for _ in range(20):
        world.run_for(1)
    assert made
    world.signal("late", "word", 7)
    world.run(lambda: world.ended("late"))
    assert world.show("late")["result"] == 7
