"""The ingress: entries of programs without a client have their effect exactly once, whatever breaks on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sim.bodies import work
from sim.harness import ShardDied, SimShard, World

from stepwell import flow, step, wait_for
from stepwell.actors import store_events
from stepwell.actors.ingress import CLAIM_IDLE_MS, FORGET_IDLE_MS
from stepwell.actors.intake import WAIT_FOR_START_SECONDS
from stepwell.core.status import PARKED
from stepwell.store.ingress import GROUP, IngressStore
from stepwell.store.link import LinkDown

MakeWorld = Callable[..., World]
Fate = Callable[[int, Callable[[], list[object]]], list[object]]


@step
async def note(word: object) -> object:
    await work(1)
    return word


@flow
async def echo(word: str, times: int = 1) -> str:
    return str(await note(word)) * times


@flow
async def listens() -> list[object]:
    return [await wait_for("one"), await wait_for("two")]


def add(world: World, **fields: Any) -> str:
    """XADD, as any program may do it."""
    flat = {name: value if isinstance(value, str | bytes) else json.dumps(value) for name, value in fields.items()}
    return world.client.xadd(world.keys.ingress, flat).decode()  # type: ignore[arg-type]


def store_of(shard: SimShard) -> IngressStore:
    assert shard.ingress is not None
    return shard.ingress._store


def left(world: World) -> tuple[int, int]:
    """Entries in the stream, and those that somebody has taken up."""
    pending = world.client.xpending(world.keys.ingress, GROUP)["pending"]
    return world.client.xlen(world.keys.ingress), pending


def consumers(world: World) -> list[str]:
    return sorted(each["name"].decode() for each in world.client.xinfo_consumers(world.keys.ingress, GROUP))


def all_ended(world: World) -> bool:
    statuses = world.statuses()
    return left(world) == (0, 0) and not any(statuses[each] for each in ("queued", "running", "waiting"))


def test_an_entry_starts_a_flow_and_leaves_nothing_behind(make_world: MakeWorld) -> None:
    world = make_world(echo)
    add(world, type="start", flow="echo", id="mine", input={"word": "a", "times": 2})
    derived = add(world, type="start", flow="echo", input='  { "word" : "b" } ', attributes={"customer": "c7", "n": 1})
    world.shard(ingress=True)
    world.run(lambda: world.ended("mine", f"in-{derived}"))
    assert world.show("mine")["result"] == "aa"
    assert world.show(f"in-{derived}")["result"] == "b"
    assert world.show(f"in-{derived}")["attributes"] == {"customer": "c7", "n": 1}
    assert left(world) == (0, 0)
    assert [(event.kind, event.count) for event in world.of_type(store_events.IngressTaken)] == [("start", 2)]


def test_the_same_id_twice_starts_one_execution(make_world: MakeWorld) -> None:
    world = make_world(echo)
    world.shard(ingress=True)
    for _ in range(3):
        add(world, type="start", flow="echo", id="mine", input={"word": "a"})
    world.run(lambda: world.ended("mine") and left(world) == (0, 0))
    assert world.dead_letters() == []
    assert len(world.ledger.runs) == 1


@pytest.mark.parametrize(
    "other", [{"flow": "echo", "input": {"word": "b"}}, {"flow": "listens", "input": {}}], ids=["input", "flow"]
)
def test_an_id_that_is_taken_by_something_else_is_a_dead_letter(make_world: MakeWorld, other: dict[str, Any]) -> None:
    world = make_world(echo, listens)
    world.shard(ingress=True)
    add(world, type="start", flow="echo", id="mine", input={"word": "a"})
    add(world, type="start", id="mine", **other)
    world.run(lambda: world.ended("mine") and left(world) == (0, 0))
    [letter] = world.dead_letters()
    assert (letter["kind"], "mine" in letter["reason"] and "exists already" in letter["reason"]) == ("id taken", True)
    assert world.show("mine")["result"] == "a"


def test_commands_reach_their_execution_and_have_their_effect_once(make_world: MakeWorld) -> None:
    world = make_world(listens)
    world.shard(ingress=True)
    add(world, type="start", flow="listens", id="e1")
    add(world, type="signal", execution="e1", name="two", payload={"n": 2})
    add(world, type="signal", execution="e1", name="one")
    add(world, type="start", flow="listens", id="e2")
    add(world, type="cancel", execution="e2")
    world.run(lambda: world.ended("e1", "e2"))
    assert world.show("e1")["result"] == [None, {"n": 2}]
    assert world.status("e2") == "cancelled"
    assert left(world) == (0, 0)
    assert world.dead_letters() == []
    assert {event.kind for event in world.of_type(store_events.IngressTaken)} == {"start", "signal", "cancel"}


def test_a_command_waits_for_the_start_that_another_shard_has_taken_up(make_world: MakeWorld) -> None:
    world = make_world(listens)
    slow = world.shard(ingress=True)
    slow.paused.add("ingress")
    add(world, type="start", flow="listens", id="e1")
    assert len(store_of(slow).read(None, 1)) == 1
    add(world, type="signal", execution="e1", name="one", payload=1)
    add(world, type="signal", execution="e1", name="two", payload=2)
    world.shard(ingress=True)
    world.run_for(5)
    assert (world.dead_letters(), left(world)) == ([], (3, 3))
    slow.paused.clear()
    world.run(lambda: world.ended("e1"), limit=5)
    assert world.show("e1")["result"] == [1, 2]


def test_a_command_does_not_wait_for_ever_behind_an_entry_that_nobody_finishes(make_world: MakeWorld) -> None:
    world = make_world(listens)
    stuck = world.shard(ingress=True)
    stuck.paused.add("ingress")
    add(world, type="start", flow="listens", id="stuck")
    [entry] = store_of(stuck).read(None, 1)
    add(world, type="signal", execution="nobody", name="one")
    world.shard(ingress=True)
    for second in range(int(WAIT_FOR_START_SECONDS) + 5):
        world.client.xclaim(world.keys.ingress, GROUP, f"w{stuck.name}/0", 0, [entry.entry_id])  # nobody else does
        assert second > 50 or world.dead_letters() == []
        world.run_for(1)
    assert [letter["kind"] for letter in world.dead_letters()] == ["no such execution"]
    assert left(world) == (1, 1)


def test_a_command_for_nobody_becomes_a_dead_letter_that_can_be_replayed(make_world: MakeWorld) -> None:
    world = make_world(listens)
    world.shard(ingress=True)
    for name in ("one", "two"):
        add(world, type="signal", execution="later", name=name, payload=json.dumps(name))
    world.run(lambda: len(world.dead_letters()) == 2)
    assert {letter["kind"] for letter in world.dead_letters()} == {"no such execution"}
    assert left(world) == (0, 0)
    add(world, type="start", flow="listens", id="later")
    world.run(lambda: world.status("later") == "waiting")
    world.replay_letters()
    world.run(lambda: world.ended("later"))
    assert world.show("later")["result"] == ["one", "two"]


def test_a_letter_of_the_ingress_is_taken_in_after_its_cause_is_gone(make_world: MakeWorld) -> None:
    world = make_world(listens)
    world.shard(ingress=True)
    add(world, type="start", flow="listens", id="e1", v="odd")
    world.run(lambda: len(world.dead_letters()) == 1)
    world.replay_letters()
    world.run(lambda: len(world.dead_letters()) == 1)
    assert left(world) == (0, 0)
    assert world.status("e1") == "", "the cause is still there"


GARBAGE: list[tuple[dict[Any, Any], str]] = [
    ({"a": "b"}, "no field 'type'"),
    ({"type": "start"}, "no field 'flow'"),
    ({"type": "start", "flow": ""}, "no field 'flow'"),
    ({"type": "start", "flow": "a b"}, "expected a flow name"),
    ({"type": "start", "flow": "echo", "attributes": "[1]"}, "must be a JSON object"),
    ({"type": "start", "flow": "echo", "attributes": '{"a b": 1}'}, "expected an attribute name"),
    ({"type": "start", "flow": "echo", "attributes": '{"a": [1]}'}, "must be text, a number"),
    ({"type": "start", "flow": b"\xff\xfe"}, "is no text"),
    ({"type": "start", "flow": "x" * 5000}, "too long"),
    ({"type": "start", "flow": "echo", "input": "{"}, "not JSON"),
    ({"type": "start", "flow": "echo", "input": ""}, "not JSON"),
    ({"type": "start", "flow": "echo", "input": b"\x80\xff"}, "not JSON"),
    ({"type": "start", "flow": "echo", "input": "[" * 100_000}, "not JSON"),
    ({"type": "start", "flow": "echo", "input": '{"word":' + "[" * 300 + "]" * 300 + "}"}, "deeper"),
    ({"type": "start", "flow": "echo", "input": "[1]"}, "must be a JSON object"),
    ({"type": "start", "flow": "echo", "input": "7"}, "must be a JSON object"),
    ({"type": "start", "flow": "echo", "input": '{"word":"' + "x" * 1_100_000 + '"}'}, "too large"),
    ({"type": "start", "flow": "echo", "input": b" " * 3_000_000}, "too large"),
    ({"type": "start", "flow": "echo", "id": "not an id", "input": '{"word":"a"}'}, "expected an execution id"),
    ({"type": "start", "flow": "echo", "id": "", "input": '{"word":"a"}'}, "no field 'id'"),
    ({"type": "start", "flow": "echo", "id": "x" * 500, "input": '{"word":"a"}'}, "expected an execution id"),
    ({"type": "start", "flow": "echo"}, "lacks word"),
    ({"type": "start", "flow": "echo", "input": '{"word":"a","wrod":1}'}, "unknown wrod"),
    ({"type": "start", "flow": "echo", "input": '{"word":7}'}, "does not fit"),
    ({"type": "start", "flow": "echo", "v": "099", "input": '{"word":"a"}'}, "format"),
    ({"type": "start", "flow": "echo", "v": b"\xff", "input": '{"word":"a"}'}, "format"),
    ({"type": "explode", "execution": "e1"}, "no entry is of type"),
    ({"type": "x" * 100_000}, "too long"),
    ({b"\xff\xfe\x00": b"\x80" * 100_000}, "no field 'type'"),
    ({"type": "signal", "execution": "e1"}, "no field 'name'"),
    ({"type": "signal", "execution": "e1", "name": "a b"}, "expected a signal name"),
    ({"type": "signal", "execution": "e1", "name": "go", "payload": "{"}, "not JSON"),
    ({"type": "signal", "execution": "e1", "name": "go", "payload": '"' + "x" * 1_100_000 + '"'}, "too large"),
    ({"type": "cancel"}, "no field 'execution'"),
    ({"type": "cancel", "execution": "not an id"}, "expected an execution id"),
    ({"type": "retry", "execution": b"\x00"}, "expected an execution id"),
    ({str(n): "x" for n in range(9_000)}, "no field 'type'"),
]


@pytest.mark.pain(31)
def test_garbage_in_the_ingress_becomes_dead_letters_with_reasons_and_the_rest_goes_on(make_world: MakeWorld) -> None:
    world = make_world(echo)
    shard = world.shard(ingress=True)
    ids: list[str] = []
    for number, (fields, _) in enumerate(GARBAGE):
        ids.append(world.client.xadd(world.keys.ingress, fields).decode())
        add(world, type="start", flow="echo", id=f"e{number}", input={"word": "a"})
    world.run(lambda: all_ended(world))
    reasons = {letter["entry"]: letter["reason"] for letter in world.dead_letters()}
    assert sorted(reasons) == sorted(ids)
    wrong = [(said, reasons[each]) for (_, said), each in zip(GARBAGE, ids, strict=True) if said not in reasons[each]]
    assert wrong == []
    assert max(map(len, reasons.values())) < 1500
    assert len(world.statuses()["completed"]) == len(GARBAGE)
    assert len(world.of_type(store_events.DeadLettered)) == len(GARBAGE)
    assert world.of_type(store_events.ActorFailed) == []
    assert shard.in_memory == []


@pytest.mark.pain(31)
def test_foreign_keys_in_place_of_a_row_or_an_inbox_bury_that_entry_alone(make_world: MakeWorld) -> None:
    world = make_world(echo, audited=False)
    shard = world.shard(ingress=True)
    shard.paused.add("reader")
    world.client.set(world.keys.row("odd"), "not a row")
    broken = world.keys.partition_of("odd")
    ids = {world.keys.partition_of(f"i{n}"): f"i{n}" for n in range(20)}
    add(world, type="start", flow="echo", id="odd", input={"word": "a"})
    for partition in (broken, 1 - broken):
        add(world, type="start", flow="echo", id=ids[partition], input={"word": "a"})
    world.run_for(1)
    world.client.delete(world.keys.inbox(broken))
    world.client.set(world.keys.inbox(broken), "not a stream")
    for partition in (broken, 1 - broken):
        add(world, type="cancel", execution=ids[partition])
    world.run_for(1)
    letters = world.dead_letters()
    assert [letter["kind"] for letter in letters] == ["not applicable", "not applicable"]
    assert [letter["reason"].partition(":")[0] for letter in letters] == [f"cancel of {ids[broken]}", "execution odd"]
    assert "WRONGTYPE" in letters[0]["reason"]
    assert "is a string, not the hash in which Stepwell keeps an execution" in letters[1]["reason"]
    sent = [entry for entry in world.inbox_of(1 - broken) if entry["type"] == "cancel"]
    assert len({entry["command"] for entry in sent}) == 1, "it may be there twice, and counts once"
    assert left(world) == (0, 0)


def test_a_flow_that_nobody_knows_yet_is_parked_until_somebody_does(make_world: MakeWorld) -> None:
    world = make_world(echo)
    world.shard(ingress=True)
    add(world, type="start", flow="next_week", id="e1", input={"x": 1})
    world.run(lambda: world.status("e1") == PARKED)
    assert world.dead_letters() == []


def test_an_input_that_another_worker_takes_is_no_misfit(make_world: MakeWorld) -> None:
    world = make_world(echo)
    world.shard(ingress=True)
    offers = {
        "echo": {"parameters": {"word": True, "colour": False}},
        "far": {"parameters": {"x": True}, "types": {"x": ["int"]}},
    }
    world.offers.append({"flows": offers})
    add(world, type="start", flow="echo", id="deploy", input={"word": "a", "colour": "red"})
    add(world, type="start", flow="echo", id="neither", input={"word": "a", "size": 1})
    add(world, type="start", flow="far", id="fits", input={"x": 1})
    add(world, type="start", flow="far", id="lacks", input={})
    add(world, type="start", flow="far", id="words", input={"x": "1"})
    world.run(lambda: left(world) == (0, 0))
    made = [world.status(each) != "" for each in ("deploy", "neither", "fits", "lacks", "words")]
    assert made == [True, False, True, False, False]
    assert [letter["kind"] for letter in world.dead_letters()] == ["input"] * 3


# What breaks.


def cut_off(shard: SimShard, fate: Fate) -> list[int]:
    """Let `fate(n, go)` decide about the n-th exchange of its ingress from now on; the numbers seen."""
    link = store_of(shard)._link
    plain = link._round_trip
    seen: list[int] = []

    def exchange(commands: Any) -> list[object]:
        if not commands:
            return []
        seen.append(len(seen))
        return fate(seen[-1], lambda: plain(commands))

    link._round_trip = exchange  # type: ignore[method-assign]
    return seen


def prepared(make_world: MakeWorld, fate: Fate) -> tuple[World, SimShard, list[int]]:
    """A start, a misfit and two commands wait for a shard whose exchanges have that fate; another runs the flows."""
    world = make_world(echo, listens)
    world.shard()
    shard = world.shard(ingress=True)
    world.start(listens, "there")
    world.run(lambda: world.status("there") == "waiting")
    seen = cut_off(shard, fate)
    add(world, type="start", flow="echo", id="e1", input={"word": "a"})
    add(world, type="start", flow="echo", id="bad", input={})
    add(world, type="signal", execution="there", name="one", payload=1)
    add(world, type="signal", execution="there", name="two", payload=2)
    return world, shard, seen


def each_once(world: World) -> None:
    assert world.show("there")["result"] == [1, 2]
    assert len(world.ledger.runs) == 1, "one step of one execution"
    [letter] = world.dead_letters()
    assert letter["kind"] == "input"
    assert world.inbox() == []


def exchanges(make_world: MakeWorld) -> int:
    """How many exchanges it takes when nothing breaks."""
    world, _, seen = prepared(make_world, lambda _number, go: go())
    world.run(lambda: left(world) == (0, 0) and world.ended("e1", "there"))
    each_once(world)
    assert len(seen) > 5
    return len(seen)


@pytest.mark.pain(12, 13, 29)
@pytest.mark.parametrize("executed", [True, False], ids=["reply lost", "never sent"])
def test_whatever_exchange_breaks_each_entry_has_its_effect_once(make_world: MakeWorld, executed: bool) -> None:
    for broken in range(exchanges(make_world)):

        def fate(number: int, go: Callable[[], list[object]], broken: int = broken) -> list[object]:
            if number == broken:
                if executed:
                    go()
                raise LinkDown("cut, on purpose")
            return go()

        world, _, _ = prepared(make_world, fate)
        world.run(lambda world=world: left(world) == (0, 0) and world.ended("e1", "there"), limit=CLAIM_IDLE_MS / 2000)
        world.run_for(1)
        each_once(world)
        assert len(world.of_type(store_events.DeadLettered)) == 1, f"exchange {broken}"


@pytest.mark.pain(13, 29)
def test_whatever_a_dying_shard_has_begun_another_ends_and_cleans_up(make_world: MakeWorld) -> None:
    for broken in range(exchanges(make_world)):

        def fate(number: int, go: Callable[[], list[object]], broken: int = broken) -> list[object]:
            raws = go()
            if number == broken:
                raise ShardDied
            return raws

        world, dying, _ = prepared(make_world, fate)
        world.run_for(2)
        assert dying in world.dead, f"exchange {broken}"
        other = world.shard(ingress=True)
        world.run_for(CLAIM_IDLE_MS / 1000 + 10)
        assert left(world) == (0, 0), f"exchange {broken}"
        each_once(world)
        world.run_for(FORGET_IDLE_MS / 1000 + 70)
        assert consumers(world) == [f"w{other.name}/0"], "the dead one's is gone"


def test_the_consumer_of_a_living_shard_is_not_forgotten_however_long_nothing_comes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers before 7.2 count only what a consumer gets."""
    world = make_world(echo)
    here, there = world.shard(ingress=True), world.shard(ingress=True)
    world.run_for(1)
    both = consumers(world)
    assert both == sorted([f"w{here.name}/0", f"w{there.name}/0"])
    for shard in (here, there):
        others = [each for each in both if each != f"w{shard.name}/0"]
        monkeypatch.setattr(store_of(shard), "idlers", lambda _, others=others: others)
    world.offers += [{"id": each} for each in both]
    forgotten: list[str] = []
    for shard in (here, there):
        monkeypatch.setattr(store_of(shard), "forget", lambda each: bool(forgotten.append(each)))
    world.run_for(FORGET_IDLE_MS / 1000 + 70)
    assert forgotten == []
    world.offers.clear()
    world.run_for(FORGET_IDLE_MS / 1000 + 70)
    assert set(forgotten) == set(both), "who gives no sign of life is"


def test_a_server_that_is_full_delays_and_loses_nothing(make_world: MakeWorld) -> None:
    world = make_world(echo)
    full = redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
    shards = [world.shard(ingress=True), world.shard(ingress=True)]
    is_full = True

    def fate(_number: int, go: Callable[[], list[object]]) -> list[object]:
        raws = go()
        made = [isinstance(raw, list) and raw[:1] in ([b"CREATED"], [b"EXISTS"]) for raw in raws]
        return [full if mine and is_full else raw for mine, raw in zip(made, raws, strict=True)]

    for shard in shards:
        cut_off(shard, fate)
    for number in range(30):
        add(world, type="start", flow="echo", id=f"e{number}", input={"word": "a"})
    world.run_for(CLAIM_IDLE_MS / 1000 + 6)
    assert left(world) == (30, 30)
    is_full = False
    world.run(lambda: all_ended(world), limit=10)
    assert world.dead_letters() == []
    assert len(world.ledger.runs) == 30


def test_an_entry_whose_consumer_was_removed_by_hand_is_found(make_world: MakeWorld) -> None:
    world = make_world(echo)
    world.shard(ingress=True)
    world.run_for(1)
    add(world, type="start", flow="echo", id="e1", input={"word": "a"})
    world.client.xreadgroup(GROUP, "by-hand", {world.keys.ingress: ">"})
    assert world.client.xgroup_delconsumer(world.keys.ingress, GROUP, "by-hand") == 1
    assert left(world) == (1, 0)
    world.run_for(70)
    assert left(world) == (0, 0)
    assert world.ended("e1")


@pytest.mark.parametrize("gone", ["stream", "group"])
def test_a_stream_or_group_that_somebody_removed_is_made_again(make_world: MakeWorld, gone: str) -> None:
    world = make_world(echo)
    world.shard(ingress=True)
    add(world, type="start", flow="echo", id="e1", input={"word": "a"})
    world.run(lambda: world.ended("e1"))
    if gone == "stream":
        world.client.delete(world.keys.ingress)
    else:
        world.client.xgroup_destroy(world.keys.ingress, GROUP)
    add(world, type="start", flow="echo", id="e2", input={"word": "a"})
    world.run(lambda: world.ended("e2"), limit=10)
    assert left(world) == (0, 0)


@pytest.mark.pain(13)
def test_after_many_entries_the_ingress_is_empty_and_no_consumer_is_left(make_world: MakeWorld) -> None:
    world = make_world(echo, audited=False)
    shard = world.shard(ingress=True)
    for number in range(500):
        add(world, type="start" if number % 5 else "odd", flow="echo", id=f"e{number}", input={"word": "a"})
    world.run(lambda: all_ended(world))
    assert consumers(world) == [f"w{shard.name}/0"]
    assert shard.ingress is not None
    shard.ingress.leave()
    assert consumers(world) == []
    assert left(world) == (0, 0)


@pytest.mark.pain(11, 15)
@pytest.mark.parametrize("why", ["OOM command not allowed", "READONLY You can't write", "MISCONF snapshots fail"])
def test_a_server_that_refuses_writes_for_a_while_costs_no_entry(make_world: MakeWorld, why: str) -> None:
    world, shard, _ = prepared(make_world, lambda _, go: go())
    link = store_of(shard)._link
    plain = link._round_trip
    refused: list[str] = []

    def exchange(commands: Any) -> list[object]:
        # Room comes and goes: what makes an execution or a command is refused, its burial might not be.
        makes = [each for each in commands if each[0] == "XADD" or each[:2] == ["EVALSHA", world.scripts.create]]
        if not makes or len(refused) >= 5:
            return plain(commands)
        refused.append(str(makes[0][0]))
        return [redis.ResponseError(why) for _ in commands]

    link._round_trip = exchange  # type: ignore[method-assign]
    world.run(lambda: world.ended("e1", "there") and left(world) == (0, 0), limit=60)
    assert len(refused) == 5
    [letter] = world.dead_letters()
    assert letter["kind"] == "input"
    assert len(world.ledger.of("e1")) == 1
