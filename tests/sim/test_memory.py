"""Leaving memory and coming back at any await changes nothing, and runs none of the user's cleanup code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import Retry, StepFailed, current_step, flow, gather, sleep, step, wait_for
from stepwell.actors import messages as m
from stepwell.core import events
from stepwell.core.checkpoint import oldest_first
from stepwell.core.row import fields_of
from stepwell.core.rules.steps import ATTEMPTS_KEPT, TRIM_EVERY

MakeWorld = Callable[..., World]


@dataclass(frozen=True)
class Item:
    name: str
    tags: tuple[str, ...]


@step
async def pick(name: str) -> Item:
    await work(1)
    return Item(name, ("a", "b"))


@step
async def tags(item: Item) -> set[str]:
    assert isinstance(item, Item)
    assert isinstance(item.tags, tuple)
    await work(1)
    return set(item.tags)


@step(retry=Retry(max_attempts=2, base=8))
async def breaks() -> None:
    raise ValueError(f"attempt {current_step().attempt}")


@step
async def release(name: str) -> str:
    await work(1)
    return f"released {name}"


@flow
async def thorough() -> dict[str, object]:
    log: list[str] = []
    try:
        item = await pick("lamp")
        found = await tags(item)
        assert isinstance(found, set)
        try:
            await gather(breaks(), pick("other"))
        except StepFailed as failed:
            log.append(f"{failed.type} after {failed.attempts}")
        await sleep(20)
        word = await wait_for("word")
        log.append(word["say"])
        return {"tags": sorted(found), "name": item.name, "log": log}
    finally:
        log.append(await release("lamp"))


RESULT = {"tags": ["a", "b"], "name": "lamp", "log": ["ValueError after 2", "go", "released lamp"]}
COUNTS = {
    "pick": 1,
    "tags": 1,
    "gather.0/breaks": 2,
    "gather.1/pick": 1,
    "release": 1,
}


def leave(shard: SimShard, how: str) -> bool:
    """Take the execution out of memory now, in one way or the other; False if it is not there, or may not go."""
    ref = shard.ref("e1")
    actor = shard.actor("e1")
    if ref is None or actor is None or actor._machine is None:
        return False
    if how == "passivated":
        ref.tell(m.Passivate())
        shard.scheduler.run_until_idle()
        left = shard.actor("e1") is None
        if left:
            shard.recall("e1")
        return left
    ref.tell("nonsense")
    shard.scheduler.run_until_idle()
    return True


@pytest.mark.pain(54, 55)
@pytest.mark.parametrize("how", ["passivated", "rebuilt"])
def test_a_flow_that_leaves_memory_at_every_await_ends_the_same(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    world = make_world(thorough)
    shard = world.shard()
    if how == "rebuilt":
        monkeypatch.setattr("stepwell.actors.kit.supervision.RestartIntensity.record", lambda *_: True)
    places: dict[tuple[str, ...], int] = {}
    revs: set[bytes] = set()
    world.start(thorough, "e1")
    world.signal("e1", "word", {"say": "go"})

    def at_each_revision() -> None:
        row = world.row("e1")
        if row["rev"] not in revs and b"completed" not in row["status"] and leave(shard, how):
            revs.add(row["rev"])
            places[tuple(name for name in row if name.startswith("p:"))] = 1

    world.checks.append(at_each_revision)
    world.run(lambda: world.ended("e1"))
    assert world.show("e1")["result"] == RESULT
    assert {path: len(world.ledger.of("e1", path)) for path in COUNTS} == COUNTS
    assert len(places) >= (2 if how == "passivated" else 5), f"it left memory at {list(places)}"
    assert world.of_type(events.ResultDropped) == []


@pytest.mark.pain(54)
@pytest.mark.parametrize("how", ["crash", "release", "end of the world", "lost partition"])
def test_no_cleanup_code_runs_when_a_shard_goes(make_world: MakeWorld, how: str) -> None:
    world = make_world(thorough)
    shard = world.shard()
    world.start(thorough, "e1")
    world.run(lambda: "sleep" in world.show("e1")["open"])
    row = world.row("e1")
    if how == "crash":
        world.crash()
        shard.end()
    elif how == "release":
        shard.drain()
        world.settle()
        shard.release()
    elif how == "lost partition":
        shard.context.dispatcher.tell(m.PartitionLost(world.keys.partition_of("e1")))
        world.settle()
        assert shard.in_memory == []
    else:
        shard.scheduler.stop()
    assert world.row("e1") == row
    assert world.ledger.of("e1", "release") == []


def test_results_reach_the_flow_as_they_will_after_a_replay(make_world: MakeWorld) -> None:
    seen: list[object] = []

    @step
    async def pairs() -> list[tuple[int, str]]:
        return [(1, "a")]

    @step
    async def loose():  # type: ignore[no-untyped-def]
        return {"t": (1, 2), 3: "three"}

    @flow
    async def f() -> None:
        seen.append((await pairs(), await loose()))
        await sleep(10)

    world = make_world(f)
    world.shard()
    world.start(f, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    world.crash()
    world.shard()
    world.run()
    first, second = seen
    assert first == second == ([(1, "a")], {"t": [1, 2], "3": "three"})


def test_a_step_that_fails_for_long_keeps_in_memory_what_its_row_keeps(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=1000, base=1, factor=1, jitter=0))
    async def hopeless() -> None:
        raise ValueError("x" * 100)

    @step(retry=Retry(max_attempts=30, base=40, factor=1, jitter=0, cap=40))
    async def fails_seldom() -> None:
        raise ValueError("y")

    @flow
    async def f() -> None:
        await gather(hopeless(), fails_seldom())

    world = make_world(f, audited=False)
    shard = world.shard()
    world.start(f, "e1")
    most = 0
    while world.clock.monotonic() < 900:
        world.run_for(30)
        actor = shard.actor("e1")
        assert actor is not None
        assert actor._machine is not None
        cp = actor._machine.checkpoint
        most = max(most, len(oldest_first(cp.attempts)))
        kept = {name: raw for name, raw in fields_of(cp) if name.startswith("a:")}
        assert kept == {name: raw for name, raw in world.row("e1").items() if name.startswith("a:")}
    assert len([name for name in kept if "/hopeless:" in name]) == 2 * ATTEMPTS_KEPT
    assert len([name for name in kept if "/fails_seldom:" in name]) == 23
    assert most <= 2 * ATTEMPTS_KEPT + TRIM_EVERY + 23
