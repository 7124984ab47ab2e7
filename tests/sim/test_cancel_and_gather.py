"""Cancels, timeouts and failing gathers never overtake an attempt that runs; a retry brings back what they left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import FatalError, Retry, StepFailed, flow, gather, sleep, step
from stepwell.actors import messages as m
from stepwell.core.errors import Cancelled

MakeWorld = Callable[..., World]


@step
async def charge() -> str:
    await work(10)
    return "charged"


@step
async def refund() -> str:
    return "refunded"


@flow
async def sale() -> None:
    try:
        await charge()
        await sleep(1000)
    except Cancelled:
        await refund()
        raise


@pytest.mark.pain(52)
def test_a_cancel_waits_for_the_running_attempt_and_its_late_result_is_recorded(make_world: MakeWorld) -> None:
    world = make_world(sale)
    world.shard()
    world.start(sale, "e1")
    world.run(lambda: world.ledger.of("e1", "charge"))
    world.run_for(1)
    command = world.cancel("e1")
    world.run_for(1)
    assert world.status("e1") == "running"
    assert world.outcome("e1", command) is not None
    assert world.ledger.of("e1", "refund") == []
    world.run()
    shown = world.show("e1")
    assert shown["status"] == "cancelled"
    assert {s["path"]: s["result"] for s in shown["steps"]} == {"charge": "charged", "refund": "refunded"}
    charge_run, refund_run = world.ledger.runs
    assert refund_run.at_ms >= (charge_run.ended_ms or 0)


@pytest.mark.pain(52)
@pytest.mark.parametrize("how", ["rebuilt", "its row diverged"])
def test_a_cancel_waits_for_the_running_attempt_though_its_actor_is_rebuilt(make_world: MakeWorld, how: str) -> None:
    world = make_world(sale)
    shard = world.shard()
    world.start(sale, "e1")
    world.run(lambda: world.ledger.of("e1", "charge"))
    world.run_for(1)
    world.cancel("e1")
    world.run_for(1)
    if how == "rebuilt":
        ref = shard.ref("e1")
        assert ref is not None
        ref.tell("nonsense")
    else:
        world.client.hincrby(world.keys.row("e1"), "rev", 5)
        world.signal("e1", "any")
    world.run_for(1)
    assert world.status("e1") == "running"
    assert world.ledger.of("e1", "refund") == []
    world.run()
    shown = world.show("e1")
    assert shown["status"] == "cancelled"
    assert {s["path"]: s["result"] for s in shown["steps"]} == {"charge": "charged", "refund": "refunded"}
    assert len(world.ledger.runs) == 2


def test_a_cancel_during_a_backoff_works_at_once(make_world: MakeWorld) -> None:
    @step(retry=Retry(base=1000, cap=1000))
    async def down() -> None:
        raise ConnectionError("down")

    @flow
    async def f() -> None:
        await down()

    world = make_world(f)
    world.shard()
    world.start(f, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    world.cancel("e1")
    world.run()
    assert world.status("e1") == "cancelled"
    assert world.clock.monotonic() < 1
    assert len(world.ledger.runs) == 1


def test_a_cancel_between_a_declaration_and_its_start_lets_nothing_start(make_world: MakeWorld) -> None:
    world = make_world(sale)
    shard = world.shard()
    shard.paused.add("mirror")
    world.start(sale, "e1")
    shard.paused.clear()
    world.run(lambda: shard.in_memory == ["e1"])
    ref = shard.ref("e1")
    if ref is not None and not world.ledger.runs:
        ref.tell(m.CommandMail("", "c1", "cancel", b"{}"))
    else:
        world.cancel("e1")
    world.run()
    assert world.status("e1") == "cancelled"


@pytest.mark.pain(52)
def test_the_next_attempt_waits_until_a_timed_out_one_has_ended(make_world: MakeWorld) -> None:
    import asyncio

    @step(timeout=1, retry=Retry(max_attempts=2, base=0.1))
    async def stubborn() -> str:
        try:
            await work(50)
        except asyncio.CancelledError:
            await work(5)  # cleaning up takes its time
            raise
        return "never"

    @flow
    async def f() -> None:
        await stubborn()

    world = make_world(f)
    world.shard()
    world.start(f, "e1")
    world.run()
    first, second = world.ledger.runs
    assert second.at_ms >= (first.ended_ms or 0) + 100
    assert (first.ended_ms or 0) - first.at_ms == 6000
    assert world.show("e1")["error"]["type"] == "StepTimeout"


class Fates:
    """What the three branches do; a test may heal them."""

    healed = False


@step
async def runs() -> str:
    await work(20)
    return "ran"


@step(retry=Retry(max_attempts=5, base=100, cap=100, jitter=0))
async def backs_off() -> str:
    if not Fates.healed:
        raise ConnectionError("down")
    return "up"


@step(retry=Retry(max_attempts=2, base=5, jitter=0))
async def exhausts() -> str:
    if not Fates.healed:
        raise ValueError("broken")
    return "mended"


@flow
async def three_branches() -> list[str]:
    return list(await gather(runs(), backs_off(), exhausts()))


def test_one_exhausted_branch_loses_nothing_and_retry_brings_all_back(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fates, "healed", False)
    world = make_world(three_branches)
    world.shard()
    world.start(three_branches, "e1")
    world.run()
    failed = world.show("e1")
    assert failed["status"] == "error"
    assert failed["error"]["failed_step"]["path"] == "gather.2/exhausts"
    assert failed["error"]["failed_step"]["attempts"] == 2
    assert failed["open"] == {}
    left = failed["error"]["open"]
    assert {path: op["attempts"] for path, op in left.items()} == {"gather.1/backs_off": 1, "gather.2/exhausts": 2}
    assert {s["path"]: s["result"] for s in failed["steps"]}["gather.0/runs"] == "ran"
    assert world.ledger.runs[0].ended_ms == 1_700_000_020_000, "what ran ended first and is recorded"
    tokens = {s["path"]: s["token"] for s in failed["steps"]}
    monkeypatch.setattr(Fates, "healed", True)
    world.retry("e1")
    world.run()
    done = world.show("e1")
    assert done["result"] == ["ran", "up", "mended"]
    assert {s["path"]: s["token"] for s in done["steps"]} == tokens
    assert world.ledger.attempts("e1", "gather.0/runs") == [1]
    assert world.ledger.attempts("e1", "gather.1/backs_off") == [1, 2]
    assert world.ledger.attempts("e1", "gather.2/exhausts") == [1, 2, 3]
    [superseded] = done["failures"]
    assert superseded["type"] == "ValueError"


def test_a_second_failure_gets_a_fresh_budget_and_keeps_counting(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fates, "healed", False)
    world = make_world(three_branches)
    world.shard()
    world.start(three_branches, "e1")
    world.run()
    world.retry("e1")
    world.run()
    assert world.ledger.attempts("e1", "gather.2/exhausts") == [1, 2, 3, 4]
    assert len(world.ledger.keys("e1", "gather.2/exhausts")) == 1
    assert world.show("e1")["error"]["attempts"] == 4


def test_a_compensated_failure_can_t_be_retried_and_says_why(make_world: MakeWorld) -> None:
    @step(retry=Retry(max_attempts=1))
    async def pay() -> None:
        raise FatalError("stolen")

    @flow
    async def saga() -> None:
        try:
            await pay()
        except StepFailed:
            await refund()
            raise

    world = make_world(saga)
    world.shard()
    world.start(saga, "e1")
    world.run()
    command = world.retry("e1")
    world.run()
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert not outcome.applied
    assert "compensated" in outcome.reason
    assert world.status("e1") == "error"
    assert len(world.ledger.runs) == 2


def test_what_other_branches_go_on_with_does_not_answer_a_failure(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fates, "healed", False)

    @step(retry=Retry(max_attempts=1))
    async def never() -> None:
        raise FatalError("stolen")

    @step(retry=Retry(max_attempts=1))
    async def fails() -> None:
        if not Fates.healed:
            raise ConnectionError("down")

    @step
    async def takes(seconds: int) -> None:
        await work(seconds)

    async def inner() -> None:
        await gather(fails(), takes(5))

    async def goes_on() -> None:
        await takes(1)
        await takes(1)  # it begins while the inner gather still waits for its other branch

    @flow
    async def outer() -> None:
        try:
            await never()
        except StepFailed:
            await gather(inner(), goes_on())

    world = make_world(outer)
    world.shard()
    world.start(outer, "e1")
    world.run()
    assert [*world.show("e1")["error"]["open"]] == ["gather.0/gather.0/fails"]
    monkeypatch.setattr(Fates, "healed", True)
    world.retry("e1")
    world.run()
    assert world.status("e1") == "completed"
    assert world.ledger.attempts("e1", "never") == [1]


def test_a_crash_while_a_failing_gather_winds_up_ends_the_same_way(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fates, "healed", False)
    world = make_world(three_branches)
    world.shard()
    world.start(three_branches, "e1")
    world.run_for(10)  # one is exhausted, one still runs
    assert world.status("e1") == "running"
    world.crash()
    world.shard()
    world.run()
    shown = world.show("e1")
    assert shown["status"] == "error"
    assert shown["error"]["failed_step"]["path"] == "gather.2/exhausts"
    monkeypatch.setattr(Fates, "healed", True)
    world.retry("e1")
    world.run()
    assert world.show("e1")["result"] == ["ran", "up", "mended"]
    assert world.ledger.attempts("e1", "gather.0/runs") == [1, 1]
