"""What goes on beside a step changes nothing for it: neither its slot, nor its budget, nor when it is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import Retry, StepFailed, current_step, flow, gather, sleep, step, wait_for

MakeWorld = Callable[..., World]


@step(retry=Retry(max_attempts=2, base=3600, cap=3600, jitter=0))
async def fails_once() -> int:
    if current_step().attempt == 1:
        raise ConnectionError("down")
    return 1


@step
async def fine() -> int:
    return 1


@flow
async def backs_off() -> int:
    return await fails_once()


@flow
async def sleeps() -> int:
    await sleep(hours=1)
    return 1


@flow
async def listens() -> int:
    await wait_for("word", timeout=3600)
    return 1


@flow
async def does_all() -> list[Any]:
    return list(await gather(fails_once(), sleep(hours=1), wait_for("word")))


@flow
async def quick() -> int:
    return await fine()


@pytest.mark.pain(24, 43)
@pytest.mark.parametrize("waiting", [backs_off, sleeps, listens, does_all], ids=lambda waiting: waiting.name)
def test_more_waiting_executions_than_slots_hold_nobody_up(make_world: MakeWorld, waiting: Any) -> None:
    world = make_world(waiting, quick)
    shard = world.shard(max_running=3)
    for n in range(12):
        world.start(waiting, f"w{n}")
    world.run(lambda: len(world.statuses()["waiting"]) == 12, limit=60)
    world.start(quick, "q")
    world.run(lambda: world.ended("q"), limit=60)
    assert world.clock.monotonic() < 1
    assert shard.runner.running == 0


@pytest.mark.pain(26)
def test_a_budget_is_not_touched_by_what_succeeds_meanwhile(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=5, base=0.2))
    async def hopeless() -> None:
        raise ConnectionError("down")

    async def busy() -> int:
        for _ in range(40):
            await fine()
            await sleep(0.1)
        return 40

    async def careful() -> int:
        try:
            await hopeless()
        except StepFailed as failed:
            return failed.attempts
        return 0

    @flow
    async def both() -> list[int]:
        return list(await gather(careful(), busy(), careful()))

    world = make_world(both)
    world.shard()
    world.start(both, "e1")
    world.run(lambda: world.ended("e1"), limit=60)
    assert world.show("e1")["result"] == [5, 40, 5]
    assert world.ledger.attempts("e1", "gather.0/hopeless") == [1, 2, 3, 4, 5]


@pytest.mark.pain(27)
@pytest.mark.parametrize("what", ["backoff", "sleep", "wait"])
def test_a_slow_commit_does_not_put_off_what_is_due(make_world: MakeWorld, what: str) -> None:
    @step(retry=Retry(max_attempts=2, base=10, jitter=0))
    async def busy() -> int:
        await work(1)
        if what == "backoff" and current_step().attempt == 1:
            raise ConnectionError("down")
        return 1

    @flow
    async def waits() -> None:
        await busy()
        if what == "sleep":
            await sleep(10)
        elif what == "wait":
            try:
                await wait_for("word", timeout=10)
            except TimeoutError:
                await fine()

    world = make_world(waits)
    shard = world.shard()
    world.start(waits, "e1")
    world.run(lambda: world.ledger.of("e1"))
    shard.paused.add("mirror")
    world.run_for(4)  # the attempt ended after a second; its commit goes out only now
    shard.paused.clear()
    world.run(lambda: world.status("e1") == "waiting")
    [due_at] = [op["due_at"] for op in world.show("e1")["open"].values()]
    began = world.ledger.runs[0].at_ms
    assert due_at == began + 11_000
    if what == "backoff":
        world.run(lambda: len(world.ledger.runs) == 2)
    else:
        world.run(lambda: world.ended("e1"))
    assert due_at <= world.clock.now_ms() <= due_at + 10
