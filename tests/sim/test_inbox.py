"""What comes in: commands and their effects, garbage, a Redis that blinks, sweeps, and the handshake before an
execution leaves memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import flow, sleep, step, wait_for
from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.core.status import COMPLETED
from stepwell.store.requests import Commit, Load, Request

MakeWorld = Callable[..., World]


@step
async def note(word: object) -> object:
    await work(1)
    return word


@flow
async def listens() -> list[object]:
    return [await wait_for("one"), await note("between"), await wait_for("two")]


@flow
async def quick() -> object:
    return await note("quick")


@flow
async def naps() -> str:
    await sleep(100)
    return "rested"


@pytest.mark.pain(29)
def test_each_command_has_an_effect_or_a_refusal_that_says_why(make_world: MakeWorld) -> None:
    world = make_world(listens, quick)
    world.shard()
    world.start(listens, "e1")
    world.start(quick, "done")
    world.run(lambda: world.ended("done"))
    sent = {
        "signal": world.signal("e1", "one", 1),
        "early": world.signal("e1", "two", 2),
        "nothing backs off": world.retry("e1"),
        "too late": world.signal("done", "one"),
        "ended": world.cancel("done"),
        "completed": world.retry("done"),
        "nobody": world.signal("ghost", "one"),
    }
    world.run()
    world.audit.commands_answered(list(sent.values()))
    assert world.show("e1")["result"] == [1, "between", 2]
    told = {
        name: world.outcome("ghost" if name == "nobody" else "done", command)
        for name, command in sent.items()
        if name in ("too late", "ended", "completed", "nobody")
    }
    assert all(outcome is not None and not outcome.applied and outcome.reason for outcome in told.values())
    refused = world.outcome("e1", sent["nothing backs off"])
    assert refused is not None
    assert "nothing is backing off" in refused.reason
    assert "no execution ghost" in told["nobody"].reason  # type: ignore[union-attr]
    [letter] = world.dead_letters()
    assert "ghost" in letter["reason"]


def test_a_command_that_is_sent_twice_counts_once(make_world: MakeWorld) -> None:
    world = make_world(listens)
    world.shard()
    world.start(listens, "e1")
    world.run()
    for _ in range(2):
        world.send("signal", "e1", {"name": "one", "payload": 1}, command_id="same")
    world.run()
    assert list(world.show("e1")["open"]) == ["wait#2"]
    assert world.inbox() == []
    assert not [name for name in world.row("e1") if name.startswith("s:")], "the repeat was not buffered"


GARBAGE = [
    {"a": "b"},
    {"type": "start"},
    {"type": b"\xff\xfe", "execution": "e1"},
    {"type": "start", "execution": b"\x00\xff"},
    {"type": "start", "execution": "not an id"},
    {"type": "start", "execution": "x" * 5000},
    {b"\xff\xfe\x00": b"\x80" * 100_000},
    {"type": "signal", "execution": "{own}", "command": "c1", "data": b"\x80{", "v": "1"},
    {"type": "signal", "execution": "{own}", "command": "c2", "data": "[]", "v": "1"},
    {"type": "signal", "execution": "{own}", "command": "c3", "data": '{"name":"a b"}', "v": "1"},
    {"type": "signal", "execution": "{own}", "command": "c4", "data": '{"name":7}', "v": "1"},
    {"type": "signal", "execution": "{own}", "command": "c5", "data": "[" * 100_000, "v": "1"},
    {"type": "signal", "execution": "{own}", "command": "x" * 500, "data": '{"name":"a"}', "v": "1"},
    {"type": "signal", "execution": "{own}", "command": b"\xc3\x28", "data": '{"name":"a"}', "v": "1"},
    {"type": "signal", "execution": "{own}", "data": '{"name":"a"}', "v": "1"},
    {"type": "explode", "execution": "{own}", "command": "c6", "data": "{}", "v": "1"},
    {"type": "x" * 100_000, "execution": "{own}", "command": "c7", "data": "{}", "v": "1"},
    {"type": "cancel", "execution": "{own}", "command": "c8", "data": "{}", "v": "099"},
    {"type": "cancel", "execution": "{own}", "command": "c9", "data": "{}", "v": b"\xff"},
    {"type": "cancel", "execution": "{unknown}", "command": "c10", "data": "{}", "v": "1"},
    {"type": "cancel", "execution": "{elsewhere}", "command": "c11", "data": "{}", "v": "1"},
    {"type": "start", "execution": "{unknown}", "v": "1"},
]


@pytest.mark.pain(31)
def test_garbage_becomes_dead_letters_with_reasons_and_the_shard_goes_on(make_world: MakeWorld) -> None:
    world = make_world(listens, quick)
    shard = world.shard()
    world.start(listens, "own")
    partition = world.keys.partition_of("own")
    ids = [f"i{n}" for n in range(20)]
    names = {
        "{own}": "own",
        "{unknown}": next(i for i in ids if world.keys.partition_of(i) == partition),
        "{elsewhere}": next(i for i in ids if world.keys.partition_of(i) != partition),
    }
    for entry in GARBAGE:
        filled = {k: names.get(v, v) if isinstance(v, str) else v for k, v in entry.items()}
        world.client.xadd(world.keys.inbox(partition), filled)
    world.run()
    letters = world.dead_letters()
    assert len(letters) == len(GARBAGE)
    assert all(len(letter["reason"]) > 10 for letter in letters)
    assert world.inbox() == []
    assert shard.scheduler.living == [":supervisor", ":dispatcher", ":healer", "own"]
    assert world.of_type(store_events.ActorFailed) == []
    world.start(quick, "after")
    world.signal("own", "one", 1)
    world.signal("own", "two", 2)
    world.run()
    assert world.ended("own", "after")


@pytest.mark.pain(31)
def test_a_key_of_a_foreign_type_in_place_of_a_row_harms_nobody_else(make_world: MakeWorld) -> None:
    world = make_world(quick, audited=False)
    world.shard()
    world.client.set(world.keys.row("odd"), "not a row")
    world.send("cancel", "odd")
    world.start(quick, "e1")
    world.run(lambda: world.ended("e1"), limit=10)
    assert world.of_type(store_events.ActorFailed) == []
    world.client.delete(world.keys.row("odd"))
    world.run(lambda: world.dead_letters(), limit=10)


@pytest.mark.pain(32)
def test_a_row_that_can_t_be_read_for_a_moment_is_read_later(make_world: MakeWorld) -> None:
    world = make_world(quick)
    shard = world.shard()
    blinked: list[Request] = []

    def judge(request: Request) -> str | None:
        if isinstance(request, Load) and len(blinked) < 3:
            blinked.append(request)
            return "down"
        return None

    shard.judge(judge)
    world.start(quick, "e1")
    world.run()
    assert len(blinked) == 3
    assert world.status("e1") == COMPLETED
    assert world.dead_letters() == []


@pytest.mark.pain(10, 32)
def test_redis_away_while_a_partition_is_taken_over_strands_nothing(make_world: MakeWorld) -> None:
    world = make_world(quick, naps)
    world.shard()
    world.start(naps, "sleeping")
    world.start(naps, "sleeping2")
    world.run(lambda: len(world.statuses()["waiting"]) == 2)
    world.crash()
    world.start(quick, "queued")
    shard = world.shard()
    world.weather.down = True
    world.run_for(3)
    world.weather.down = False
    world.run(lambda: world.ended("sleeping", "sleeping2", "queued"), limit=200)
    assert shard.crashes == []


@pytest.mark.pain(28)
def test_a_sweep_finds_an_entry_that_nobody_holds_and_counts_it(make_world: MakeWorld) -> None:
    world = make_world(listens)
    shard = world.shard()
    world.start(listens, "e1")
    world.run()
    shard.paused.add("reader")
    world.signal("e1", "one", 1)
    partition = world.keys.partition_of("e1")
    [entry] = shard.reader._store.scan(partition, "0-0", 10)
    shard.reader._after[partition] = entry.entry_id  # it was read, and what was told about it got lost
    shard.paused.clear()
    world.run(lambda: "wait#2" in world.show("e1")["open"])
    assert world.of_type(store_events.SweepFound) == [store_events.SweepFound(1, 0)]


@pytest.mark.pain(28)
def test_a_sweep_finds_an_overdue_execution_that_no_actor_holds(make_world: MakeWorld) -> None:
    world = make_world(naps)
    shard = world.shard()
    world.start(naps, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    assert shard.in_memory == []
    shard.reader._known_until = dict.fromkeys(shard.reader._known_until, math.inf)  # it forgets to look ahead
    world.run_for(100)
    world.run(lambda: world.ended("e1"), limit=20)
    found = world.of_type(store_events.SweepFound)
    assert found == [store_events.SweepFound(0, 1)]
    assert world.clock.monotonic() <= 112


def test_a_sweep_in_calm_weather_finds_nothing(make_world: MakeWorld) -> None:
    world = make_world(quick, listens, naps)
    shard = world.shard(max_running=2)
    for n in range(10):
        world.start((quick, listens, naps)[n % 3], f"e{n}")
    shard.reader._sweep_due = 0.0
    for _ in range(240):
        world.run_for(0.5)
    assert world.of_type(store_events.SweepFound) == []
    assert len(world.statuses()["completed"]) == 7


@pytest.mark.parametrize("moment", ["scan", "due"])
def test_what_ends_while_a_sweep_looks_is_no_find(make_world: MakeWorld, moment: str) -> None:
    world = make_world(quick, listens)
    shard = world.shard()
    world.start(quick, "e1")
    world.start(listens, "e2")
    world.run(lambda: world.ledger.of("e1"))
    look = getattr(shard.reader._store, moment)

    def look_and_let_go_on(*args: object) -> object:
        found = look(*args)
        shard.paused.clear()
        setattr(shard.reader._store, moment, look)
        for _ in range(3):
            shard.scheduler.run_until_idle()
            shard.runner.step()
            shard._mirror_round()
        return found

    world.signal("e2", "one", 1)
    shard.paused.add("mirror")
    world.run_for(1)  # the step has ended and the signal is read; their commits wait
    setattr(shard.reader._store, moment, look_and_let_go_on)
    world.run(lambda: world.clock.monotonic() > 15, limit=20)
    assert world.ended("e1")
    assert world.of_type(store_events.SweepFound) == []


def test_a_sweep_between_a_creation_and_its_reading_finds_nothing(make_world: MakeWorld) -> None:
    world = make_world(quick)
    shard = world.shard()
    world.run_for(1)
    read = shard.reader._read

    def read_and_create(after: dict[int, str], block_ms: int | None) -> bool:
        found = read(after, block_ms)
        if not world.row("e1"):
            world.start(quick, "e1")
            shard.reader._sweep_due = 0.0
        return found

    shard.reader._read = read_and_create  # type: ignore[method-assign]
    world.run(lambda: world.ended("e1"))
    assert world.of_type(store_events.SweepFound) == []
    assert len(world.ledger.runs) == 1


def _interleavings() -> list[tuple[str, ...]]:
    """All orders of: a command is routed, the actor asks to leave, the dispatcher works, the actor works, a sweep."""
    return sorted(set(itertools.permutations(["route", "leave", "dispatcher", "actor", "sweep"])))


@pytest.mark.pain(57)
@pytest.mark.parametrize("order", _interleavings(), ids="-".join)
def test_no_routed_command_is_lost_when_its_actor_leaves(make_world: MakeWorld, order: tuple[str, ...]) -> None:
    world = make_world(listens, audited=False)
    shard = world.shard()
    world.start(listens, "e1")
    world.run()
    ref = shard.ref("e1")
    assert ref is not None
    shard.paused.update({"reader", "mirror"})
    command = world.signal("e1", "one", 1)
    cells = {cell.name: cell for cell in shard.scheduler._living}
    for what in order:
        if what == "route":
            shard.reader.run_once(None)
        elif what == "sweep":
            shard.reader._sweep_due = 0.0
            shard.reader.run_once(None)
        elif what == "leave":
            ref.tell(m.Passivate())
        else:
            turn_of(shard, cells[":dispatcher" if what == "dispatcher" else "e1"])
    shard.paused.clear()
    world.run()
    if "wait#2" not in world.show("e1")["open"]:
        world.run(lambda: "wait#2" in world.show("e1")["open"], limit=30)
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert outcome.applied
    assert world.inbox() == []
    assert world.of_type(store_events.SweepFound) == [], "the handshake needs no sweep"


def turn_of(shard: SimShard, cell: object) -> None:
    """Give one actor a turn of one message, if it has mail."""
    runnable = shard.scheduler._runnable
    if cell in runnable:
        runnable.remove(cell)  # type: ignore[arg-type]
        cell.take_turn(1)  # type: ignore[attr-defined]
        shard.scheduler._raise_crash()


@pytest.mark.pain(57)
def test_a_command_during_the_last_commit_of_an_execution_is_answered(make_world: MakeWorld) -> None:
    world = make_world(quick)
    shard = world.shard()
    sent: list[str] = []

    def judge(request: Request) -> None:
        if isinstance(request, Commit) and request.status_to == COMPLETED and not sent:
            sent.append(world.cancel("e1"))

    shard.judge(judge)
    world.start(quick, "e1")
    world.run()
    outcome = world.outcome("e1", sent[0])
    assert outcome is not None
    assert "completed" in outcome.reason
    assert shard.in_memory == []


@pytest.mark.pain(13)
def test_nothing_is_left_behind_in_the_inbox_after_many_commands(make_world: MakeWorld) -> None:
    world = make_world(listens, audited=False)
    shard = world.shard()
    world.start(listens, "e1")
    for n in range(300):
        world.signal("e1", "other", n)
    world.run()
    assert world.inbox() == []
    assert shard.context.dispatcher._cell.actor._routes["e1"].open is None  # type: ignore[union-attr,attr-defined]
    assert len([name for name in world.row("e1") if name.startswith("s:")]) == 300
