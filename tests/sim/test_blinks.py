"""Redis blinks while rows and inboxes are read: what could not be read is read again, and is never taken for poison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.harness import World
from sim.journal import Verdict

from stepwell import flow, sleep, step, wait_for
from stepwell.actors import store_events
from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.replies import Broken, Refused
from stepwell.store.requests import Load, Request

MakeWorld = Callable[..., World]


@step
async def note(word: object) -> object:
    return word


@flow
async def listens() -> object:
    return await note(await wait_for("word"))


@flow
async def sleeps_long() -> object:
    await sleep(100)
    return await note("up")


@flow
async def naps_and_listens() -> object:
    await sleep(4)
    return await note(await wait_for("word"))


@pytest.mark.pain(32)
@pytest.mark.parametrize(
    "answer",
    ["down", "lost", Refused("loading the dataset in memory", "LOADING"), Broken("ERR something odd")],
    ids=["cut before", "cut after", "refused for now", "answered with an error"],
)
@pytest.mark.parametrize("what", ["a doorbell", "a command", "recovery"])
def test_a_row_whose_reading_fails_is_read_again_and_nothing_is_buried(
    make_world: MakeWorld, answer: Verdict, what: str
) -> None:
    flow_of = naps_and_listens if what == "recovery" else listens
    world = make_world(flow_of)
    if what != "a doorbell":
        world.shard()
        world.start(flow_of, "e1")
        world.run(lambda: world.status("e1") == "waiting")
        world.crash()
    if what == "a command":
        world.signal("e1", "word", "go")
    failed: list[Request] = []

    def judge(request: Request) -> Verdict:
        if isinstance(request, Load) and len(failed) < 3:
            failed.append(request)
            return answer
        return None

    shard = world.shard()
    shard.judge(judge)
    if what == "a doorbell":
        world.start(listens, "e1")
    if what != "a command":
        world.run(lambda: len(failed) == 3)
        world.signal("e1", "word", "go")
    world.run(lambda: world.ended("e1"), limit=60)
    assert len(failed) == 3
    assert world.show("e1")["result"] == "go"
    assert world.dead_letters() == []
    assert world.of_type(store_events.ActorFailed) == []


@pytest.mark.pain(10)
def test_an_entry_with_a_smaller_id_than_one_read_before_is_found_after_a_reconnect(make_world: MakeWorld) -> None:
    world = make_world(listens)
    shard = world.shard()
    world.start(listens, "e1")
    world.signal("e1", "other")
    world.run()
    inbox = world.keys.inbox(world.keys.partition_of("e1"))
    world.weather.down = True
    world.run_for(1)
    # The server that took over did not have the last entries, so its clock and ids may be behind those seen.
    world.client.delete(inbox)
    fields = {"type": "signal", "execution": "e1", "command": "c1", "data": '{"name":"word","payload":"go"}', "v": "1"}
    world.client.xadd(inbox, fields, id="1-1")
    world.weather.down = False
    began = world.clock.monotonic()
    world.run(lambda: world.ended("e1"), limit=60)
    assert world.clock.monotonic() - began < 2, "no sweep was needed"
    assert world.of_type(store_events.SweepFound) == []
    assert shard.crashes == []


@pytest.mark.pain(10, 32)
@pytest.mark.parametrize("kind", ["cut", "refused"])
def test_what_falls_due_while_redis_blinks_is_on_time_though_it_is_out_of_memory(
    make_world: MakeWorld, kind: str
) -> None:
    world = make_world(sleeps_long, partitions=4)
    shard = world.shard()
    ids = [f"e{number}" for number in range(8)]
    for each in ids:
        world.start(sleeps_long, each)
    world.run(lambda: all(world.status(each) == "waiting" for each in ids))
    world.run_for(1)
    assert shard.in_memory == []
    due = world.show("e1")["open"]["sleep"]["due_at"]
    plain = shard.reader._store.falling_due
    failed: list[float] = []

    def fails(windows: Any) -> Any:
        if len(failed) < 4:
            failed.append(world.clock.monotonic())
            raise LinkDown("cut off") if kind == "cut" else StoreRefused("is loading", "LOADING")
        return plain(windows)

    shard.reader._store.falling_due = fails  # type: ignore[method-assign]
    world.run(lambda: world.ended(*ids), limit=200)
    assert len(failed) == 4
    assert world.clock.now_ms() == due
    assert world.of_type(store_events.SweepFound) == []
