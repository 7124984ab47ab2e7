"""What kills its shard is found by the black box: it is parked or set apart, and innocents are not blamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sim.bodies import work
from sim.dying import ShardDied
from sim.harness import SimShard, World

from stepwell import flow, gather, sleep, step
from stepwell.actors.blackbox import BlackBox
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.runner import StepOrder
from stepwell.core.status import PARK_KILLS_SHARD

MakeWorld = Callable[..., World]


@step
async def toil(seconds: float = 5.0) -> float:
    await work(seconds)
    return seconds


@flow
async def innocent(seconds: float = 5.0) -> float:
    return await toil(seconds)


class Code:
    """The deployed code of `killer`: as long as it is bad, driving it is the end of the shard."""

    world: World | None = None


def crash() -> None:
    if Code.world is not None:
        Code.world.doomed = True


@flow
async def killer(seconds: float = 1.0, rest: float = 0.0) -> str:
    crash()
    await toil(seconds)
    if rest:
        await sleep(rest)
    return "mended"


@pytest.fixture(autouse=True)
def _good_code() -> Iterator[None]:
    yield
    Code.world = None


@flow
async def both() -> list[float]:
    return list(await gather(toil(5), toil(9)))


@flow
async def rests() -> float:
    await sleep(1000)
    return await toil(1)


def keep_alive(world: World) -> None:
    """Whenever no shard is left, a new one starts."""

    def revive() -> None:
        if not world.shards:
            world.shard()

    world.checks.append(revive)


def suspects(world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in world.keys.parts:
        fields = world.client.hgetall(part.suspects)
        found.update({name.decode(): value.decode() for name, value in fields.items()})
    return found


def interruptions(world: World, execution_id: str) -> list[int]:
    return [each["interruptions"] for each in world.show(execution_id)["steps"]]


@pytest.mark.pain(8)
@pytest.mark.parametrize("hang", [0.0, 12.0])
def test_an_execution_that_kills_its_shard_when_it_is_driven_is_parked_after_three_strikes(
    make_world: MakeWorld, hang: float
) -> None:
    world = make_world(killer, innocent)
    world.parents = True
    world.shard()
    for n in range(5):
        world.start(innocent, f"i{n}")
    world.run(lambda: len(world.ledger.runs) == 5)
    Code.world, world.hangs = world, hang
    keep_alive(world)
    world.start(killer, "k")
    world.run(lambda: world.status("k") == "parked")
    assert len(world.dead) == 3
    error = world.show("k")["error"]
    assert error["type"] == PARK_KILLS_SHARD
    assert error["message"].startswith("3 shards died while it was loaded or driven; the last: it ")
    assert world.ledger.of("k") == []
    world.run(lambda: world.ended(*(f"i{n}" for n in range(5))))
    for n in range(5):
        assert world.status(f"i{n}") == "completed"
        # A hang is known to be the fault of who was driven; a sudden death may have been any running step's.
        assert (interruptions(world, f"i{n}") == [0]) == bool(hang)
    assert suspects(world) == {}


def test_a_retry_by_hand_begins_with_no_strikes(make_world: MakeWorld) -> None:
    world = make_world(killer)
    world.parents = True
    world.shard()
    Code.world = world
    keep_alive(world)
    world.start(killer, "k")
    world.run(lambda: world.status("k") == "parked")
    assert len(world.dead) == 3
    again = world.retry("k")
    world.run(lambda: world.outcome("k", again))
    assert len(world.dead) == 6, "three more"
    refused = world.outcome("k", again)
    assert refused is not None
    assert "crashes its shard: 3 shards died" in refused.reason
    assert world.status("k") == "parked"
    assert suspects(world) == {}
    Code.world = None
    world.retry("k")
    world.run(lambda: world.ended("k"))
    assert world.show("k")["result"] == "mended"
    assert len(world.dead) == 6


def test_strikes_that_did_not_park_it_go_when_it_ends(make_world: MakeWorld) -> None:
    world = make_world(killer)
    world.parents = True
    world.shard()
    Code.world = world
    world.start(killer, "k")
    world.settle()
    world.shard()
    world.settle()
    assert suspects(world)["x:k"].startswith("2|")
    Code.world = None
    world.shard()
    world.run(lambda: world.ledger.of("k"))
    assert suspects(world)["x:k"].startswith("2|")
    world.run(lambda: world.ended("k"))
    assert world.status("k") == "completed"
    assert suspects(world) == {}


def test_strikes_survive_leaving_memory_and_go_at_the_end_all_the_same(make_world: MakeWorld) -> None:
    world = make_world(killer)
    world.parents = True
    world.shard()
    Code.world = world
    world.start(killer, "k", rest=100.0)
    world.settle()
    Code.world = None
    shard = world.shard()
    world.run(lambda: world.status("k") == "waiting")
    world.settle()
    assert shard.in_memory == []
    assert suspects(world)["x:k"].startswith("1|")
    shard.recall("k")
    world.run(lambda: world.ended("k"))
    assert suspects(world) == {}


@pytest.mark.pain(31)
def test_an_entry_that_kills_its_shard_while_it_is_read_is_a_dead_letter_after_three_strikes(
    make_world: MakeWorld,
) -> None:
    world = make_world(innocent)
    world.parents = True
    world.shard()
    world.start(innocent, "i")
    world.run(lambda: world.ledger.runs)
    partition = world.keys.partition_of("i")
    poison = world.client.xadd(world.keys.inbox(partition), {"type": "boom"}).decode()
    for _ in range(3):
        shard = world.shards[0]
        shard.box.turn(":dispatcher", world.clock.monotonic())
        BlackBox.reading(shard.box, partition, poison)
        world.crash(shard)
        assert world.findings[-1].struck == f"inbox entry {poison} of partition {partition}"
        world.shard()
        world.shards[0].paused.add("reader")
    world.crash()
    world.shard()
    world.run(lambda: world.ended("i"))
    [letter] = world.dead_letters()
    assert letter["reason"] == "3 shards died while it was read; the last: it died"
    assert world.inbox() == []
    assert suspects(world) == {}


def test_an_entry_that_is_read_at_last_is_forgiven(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.parents = True
    shard = world.shard()
    world.start(innocent, "i")
    partition = world.keys.partition_of("i")
    [(entry, _)] = world.client.xrange(world.keys.inbox(partition))
    BlackBox.reading(shard.box, partition, entry.decode())
    world.crash(shard)
    assert suspects(world) == {f"e:{entry.decode()}": suspects(world)[f"e:{entry.decode()}"]}
    world.shard()
    world.run(lambda: world.ended("i"))
    assert suspects(world) == {}


# Steps.


@pytest.mark.pain(8)
def test_only_what_the_box_shows_counts_as_interrupted(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.parents = True
    shard = world.shard()
    world.start(innocent, "a")
    world.run(lambda: world.ledger.of("a"))
    # b's step is declared, and its body has not begun when the shard dies.
    world.start(innocent, "b")
    shard.runner.step = lambda: False  # type: ignore[method-assign]
    world.settle()
    assert world.status("b") == "running"
    world.crash(shard)
    world.shard()
    world.run(lambda: world.ended("a", "b"))
    assert (interruptions(world, "a"), interruptions(world, "b")) == ([1], [0])
    assert world.ledger.attempts("a", "toil") == [1, 1]
    assert world.ledger.attempts("b", "toil") == [1]
    assert suspects(world) == {}


def test_a_step_named_by_the_box_runs_in_the_lane_from_then_on_and_its_sibling_does_not(make_world: MakeWorld) -> None:
    world = make_world(both)
    world.parents = True
    lanes = orders(world)
    world.shard()

    def die(run: object) -> None:
        if len(world.ledger.runs) == 2:
            raise ShardDied

    world.ledger.on_run.append(die)
    world.start(both, "b")
    world.settle()
    assert len(world.dead) == 1
    [named] = world.findings[-1].named
    world.ledger.on_run.clear()
    world.shard()
    world.run(lambda: world.ended("b"))
    assert world.status("b") == "completed"
    after = {path: lane for path, attempt, lane in lanes[2:]}
    assert after == {path: path == named.path for path in after}
    assert interruptions(world, "b") == [1, 1]


def test_from_the_second_interruption_a_step_runs_in_the_lane_though_no_box_names_it(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.parents = True
    lanes = orders(world)
    world.start(innocent, "a")
    for _ in range(3):
        world.shard()
        world.run_for(1)
        world.crash()
    assert [lane for _, _, lane in lanes] == [False, False, True]
    world.shard()
    world.run(lambda: world.ended("a"))
    assert interruptions(world, "a") == [3]


def test_a_death_that_was_written_down_counts_though_the_next_owner_dies_before_it_looks(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.parents = True
    world.shard()
    world.start(innocent, "a")
    world.run(lambda: world.ledger.runs)
    world.crash()
    world.shard().paused.add("reader")
    world.settle()
    assert set(suspects(world)) == {"i:a"}
    world.crash()
    idle = world.shard()
    idle.paused.add("reader")
    world.settle()
    idle.drain()
    idle.release()  # also over an owner that left in good order
    world.shard()
    world.run(lambda: world.ended("a"))
    assert interruptions(world, "a") == [1]
    assert suspects(world) == {}


def test_an_interruption_is_billed_once_though_its_owner_dies_right_after_that_commit(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.parents = True
    world.shard()
    world.start(innocent, "a")
    world.run(lambda: world.ledger.runs)
    world.crash()
    heir = world.shard()
    heir.runner.step = lambda: False  # type: ignore[method-assign]
    world.settle()
    assert interruptions(world, "a") == [1]
    world.crash()
    world.shard()
    world.run(lambda: world.ended("a"))
    assert interruptions(world, "a") == [1]
    assert len(world.ledger.of("a")) == 2


def test_without_a_box_all_that_was_open_counts_as_before(make_world: MakeWorld) -> None:
    world = make_world(innocent)
    world.shard()
    world.start(innocent, "a")
    world.run(lambda: world.ledger.runs)
    world.crash()
    world.shard()
    world.run(lambda: world.ended("a"))
    assert interruptions(world, "a") == [1]


def test_what_is_held_against_an_execution_that_is_gone_goes_too(make_world: MakeWorld) -> None:
    world = make_world(rests)
    world.shard()
    world.start(rests, "r")
    world.run(lambda: world.status("r") == "waiting")
    partition = world.keys.partition_of("r")
    ghost = next(f"g{n}" for n in range(50) if world.keys.partition_of(f"g{n}") == partition)
    odd = {f"x:{ghost}": "2|ab|it died", f"i:{ghost}": "[]", "e:5-1": "1|ab|it died", "x:r": "1|ab|it died"}
    world.client.hset(world.keys.suspects(partition), mapping=odd)
    world.crash()
    world.shard()
    world.settle()
    assert set(suspects(world)) == {"x:r"}


def orders(world: World) -> list[tuple[str, int, bool]]:
    """Path, attempt and lane of each attempt that is asked of the runner of a shard made from now on."""
    seen: list[tuple[str, int, bool]] = []
    make = world.shard

    def shard(**options: object) -> SimShard:
        made = make(**options)
        start = made.runner.start

        def record(order: StepOrder, ref: AnyRef) -> bool:
            seen.append((order.context.path, order.context.attempt, order.lane))
            return start(order, ref)

        made.runner.start = record  # type: ignore[method-assign]
        return made

    world.shard = shard  # type: ignore[method-assign]
    return seen


@pytest.mark.pain(8, 35)
@pytest.mark.parametrize("box", ["read", "unread"])
def test_what_runs_as_a_part_of_its_shard_fails_is_interrupted_and_runs_nowhere_else_before_that_has_ended(
    make_world: MakeWorld, box: str
) -> None:
    world = make_world(innocent, partitions=8)
    world.share()
    world.parents = box == "read"
    first = world.shard()
    world.start(innocent, "i", seconds=100.0)
    world.start(innocent, "done", seconds=1.0)
    world.run(lambda: world.ended("done"))
    first.give_up()
    partition = world.keys.partition_of("i")
    assert world.owners() == {partition: first.shard_id}, "the others are free"
    second = world.shard()
    world.run_for(3.0)
    assert set(second.holdings.partitions()) == set(range(8)) - {partition}
    assert len(world.ledger.of("i")) == 1
    world.thaw(first)
    world.crash(first)
    world.run(lambda: world.ended("i"))
    assert world.ledger.attempts("i", "toil") == [1, 1]
    [of_step] = world.show("i")["steps"]
    assert (of_step["status"], of_step["interruptions"], of_step["drains"]) == ("completed", 1, 0)
    [of_step] = world.show("done")["steps"]
    assert (of_step["status"], of_step["interruptions"]) == ("completed", 0)


@pytest.mark.pain(35)
def test_what_has_ended_after_it_was_cut_off_is_not_handed_over_as_if_nothing_had_run(make_world: MakeWorld) -> None:
    world = make_world(innocent, partitions=8)
    world.share()
    world.parents = True
    first, second = world.shard(shard_id="a/0"), world.shard(shard_id="b/0")
    world.run(lambda: second.holdings.partitions())
    world.run_for(1.0)
    owned = set(first.holdings.partitions())
    name = next(f"i{n}" for n in range(99) if world.keys.partition_of(f"i{n}") in owned)
    world.start(innocent, name, seconds=0.1)
    world.run(lambda: world.ledger.of(name))
    first.leave()
    first.drain()
    first.leases.hold_on()
    assert first.runner.cut_off() == {world.keys.partition_of(name)}
    world.run_for(3.0)  # its threads end one after the other
    assert world.ledger.of(name)[0].ended_ms is not None
    first.scheduler.stop()
    first.leases.release({world.keys.partition_of(name)})
    world.crash(first)
    world.run(lambda: world.ended(name))
    assert interruptions(world, name) == [1]
