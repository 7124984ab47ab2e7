"""Nobody waits behind somebody else's crowd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import flow, step

MakeWorld = Callable[..., World]


@step
async def toil() -> int:
    await work(1)
    return 1


@flow
async def crowd() -> int:
    return await toil()


@flow
async def single() -> int:
    return await toil()


@flow(max_running=2)
async def narrow() -> int:
    return await toil()


def most_at_once(world: World, flow_of_id: Callable[[str], str], name: str) -> int:
    """The most executions of a flow whose bodies ran at once."""
    runs = [run for run in world.ledger.runs if flow_of_id(run.execution_id) == name]
    moments = [run.at_ms for run in runs]
    return max(len([r for r in runs if r.at_ms <= at < (r.ended_ms or at + 1)]) for at in moments)


@pytest.mark.pain(44)
def test_ten_thousand_starts_of_one_flow_hold_up_neither_another_flow_nor_a_command(make_world: MakeWorld) -> None:
    world = make_world(crowd, single, audited=False)
    world.shard(max_running=10)
    for n in range(10_000):
        world.start(crowd, f"a{n}")
    world.start(single, "b")
    world.cancel("a9999")
    began = world.clock.monotonic()
    world.run(lambda: world.ended("a9999"), limit=1)
    assert world.clock.monotonic() == began, "a cancel waits for nobody"
    assert world.status("a9999") == "cancelled"
    world.run(lambda: world.ended("b"), limit=10)
    assert world.clock.monotonic() - began == pytest.approx(2, abs=0.1), "the next place that is free, and its own step"
    assert len(world.statuses()["completed"]) <= 21


def test_a_flow_with_a_limit_of_its_own_keeps_to_it_and_all_its_executions_end(make_world: MakeWorld) -> None:
    world = make_world(narrow, single)
    world.shard(max_running=10)
    world.settle()
    for n in range(9):
        world.start(narrow, f"n{n}")
        world.start(single, f"s{n}")
    world.run(lambda: world.ended(*[f"s{n}" for n in range(9)]))
    assert world.clock.monotonic() == pytest.approx(2, abs=0.1), "eight places for nine that take a second"
    world.run()
    assert world.clock.monotonic() == pytest.approx(5, abs=0.1)
    assert most_at_once(world, lambda each: each[0], "n") == 2
    assert world.ended(*[f"n{n}" for n in range(9)])


def test_the_limit_of_a_flow_counts_what_came_back_after_a_crash(make_world: MakeWorld) -> None:
    world = make_world(narrow)
    world.shard()
    for n in range(6):
        world.start(narrow, f"n{n}")
    world.run(lambda: len(world.ledger.runs) == 2)
    world.crash()
    world.shard()
    world.run()
    assert world.ended(*[f"n{n}" for n in range(6)])
    second_life = [run for run in world.ledger.runs if run.shard == "inc2"]
    starts = sorted(run.at_ms for run in second_life)
    assert [at - starts[0] for at in starts] == pytest.approx([0, 0, 1000, 1000, 2000, 2000], abs=50)


def test_a_doorbell_without_a_flow_is_let_in_and_counted_for_its_flow_once_its_row_is_read(
    make_world: MakeWorld,
) -> None:
    world = make_world(narrow)
    world.shard()
    for n in range(3):
        world.start(narrow, f"n{n}")
    for entry_id, _ in [entry for part in world.keys.parts for entry in world.client.xrange(part.inbox)]:
        for part in world.keys.parts:
            world.client.xdel(part.inbox, entry_id)
    for n in range(3):
        old = {"type": "start", "execution": f"n{n}", "at": "1", "v": "1"}
        world.client.xadd(world.keys.inbox(world.keys.partition_of(f"n{n}")), old)
    world.run(lambda: len(world.ledger.runs) == 3)
    world.start(narrow, "n3")
    world.run()
    assert world.ended("n0", "n1", "n2", "n3")
    assert world.ledger.of("n3")[0].at_ms >= world.ledger.of("n0")[0].at_ms + 1000
