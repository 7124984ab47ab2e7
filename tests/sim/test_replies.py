"""Each row of the reply table, forced: what the store may answer, and what an execution's owner does about it."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import ANY

import pytest
from sim.bodies import work
from sim.harness import SimShard, World
from sim.reference import play, reference
from sim.revs import nth
from sim.test_crashes import check_reference

from stepwell import flow, step, wait_for
from stepwell.actors import store_events
from stepwell.core import events
from stepwell.store.keys import PartitionKeys
from stepwell.store.replies import Committed, Conflict, Created, Exists, Fenced, Refused
from stepwell.store.requests import Commit, DeadLetter, Request, Restore

MakeWorld = Callable[..., World]
FAR = 5 * 10**15  # beyond the revisions of any grant


@step
async def count(n: int) -> int:
    await work(1)
    return n + 1


@flow
async def three() -> int:
    return await count(await count(await count(0)))


@flow
async def told() -> list[object]:
    first = await count(0)
    word = await wait_for("word")
    return [first, word, await count(1)]


def part(world: World, execution_id: str = "e1") -> PartitionKeys:
    return world.keys.parts[world.keys.partition_of(execution_id)]


def before_commit(shard: SimShard, number: int, act: Callable[[], object]) -> None:
    """Do something just before the `number`-th commit (from 1) is sent for the first time."""
    seen: list[str] = []

    def judge(request: Request) -> None:
        if isinstance(request, Commit) and request.commit_id not in seen:
            seen.append(request.commit_id)
            if len(seen) == number:
                act()

    shard.judge(judge)


def replies(world: World, kind: type) -> list[object]:
    return [sent.reply for sent in world.sent if isinstance(sent.reply, kind)]


@pytest.mark.pain(56)
def test_ok_goes_on_and_a_repeated_commit_is_recognised(make_world: MakeWorld) -> None:
    world = make_world(three)
    shard = world.shard()
    shard.judge(lambda request: "lost" if isinstance(request, Commit) and nth(request.expected_rev) == 2 else None)
    world.start(three, "e1")
    world.run(lambda: any(isinstance(s.request, Commit) and nth(s.request.expected_rev) == 2 for s in world.sent))
    shard.judge(lambda _request: None)
    world.run()
    assert replies(world, Committed).count(Committed(dup=True, seq=ANY)) == 1
    assert world.show("e1")["result"] == 3
    assert nth(world.show("e1")["rev"]) == 5


@pytest.mark.pain(56)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_fenced_by_a_lease_that_vanished_takes_it_again_and_keeps_memory(make_world: MakeWorld, number: int) -> None:
    world = make_world(three)
    shard = world.shard()
    actors: list[object] = []

    def vanish() -> None:
        actors.append(shard.actor("e1"))
        world.client.delete(part(world).lease)

    before_commit(shard, number, vanish)
    world.start(three, "e1")
    world.run(lambda: world.ended("e1"))
    assert len(replies(world, Fenced)) == 1
    assert world.of_type(store_events.Fenced) == [store_events.Fenced(world.keys.partition_of("e1"), lost=False)]
    assert [len(world.ledger.of("e1", path)) for path in ("count", "count#2", "count#3")] == [1, 1, 1]
    assert world.show("e1")["result"] == 3
    assert world.show("e1")["steps"][0]["interruptions"] == 0
    assert actors[0] is not None, "the actor lived on"


def take_away(world: World, execution_id: str = "e1") -> None:
    """Another worker is granted the partition."""
    keys = part(world, execution_id)
    epoch = int(world.client.get(keys.epoch).split(b"|")[0]) + 1
    world.client.set(keys.lease, f"other|{epoch}|x|elsewhere,boot,1,1", px=100_000_000)
    world.client.set(keys.epoch, str(epoch))


@pytest.mark.pain(40, 56)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_fenced_by_another_owner_drops_memory_and_writes_nothing(make_world: MakeWorld, number: int) -> None:
    world = make_world(three)
    shard = world.shard()
    rows: list[dict[str, bytes]] = []

    def steal() -> None:
        rows.append(world.row("e1"))
        take_away(world)

    before_commit(shard, number, steal)
    world.start(three, "e1")
    world.run(lambda: replies(world, Fenced))
    world.run_for(20)
    assert world.row("e1") == rows[0]
    assert shard.in_memory == []
    assert world.of_type(store_events.Fenced) == [store_events.Fenced(world.keys.partition_of("e1"), lost=True)]
    world.client.delete(part(world).lease)
    world.renew_seconds = 3.0
    shard.leases._due = 0.0
    world.run(lambda: world.ended("e1"))
    assert world.show("e1")["result"] == 3


@pytest.mark.pain(40)
def test_a_commit_under_an_old_lease_is_forgotten_when_the_partition_comes_back(make_world: MakeWorld) -> None:
    world = make_world(three)
    shard = world.shard()
    world.start(three, "e1")
    world.run(lambda: world.ledger.of("e1", "count"))
    shard.paused.add("mirror")
    world.run_for(2)  # the first step has ended, and its commit waits
    take_away(world)
    world.client.delete(part(world).lease)
    shard.leases._due = 0.0
    world.settle()
    assert [e.lost for e in world.of_type(store_events.Fenced)] == [True]
    shard.paused.clear()
    world.run(lambda: world.ended("e1"))
    assert world.show("e1")["result"] == 3
    assert len(replies(world, Fenced)) <= 1


def lose_last_commits(world: World, snapshots: list[dict[str, bytes]], back: int) -> None:
    row = part(world).row + "e1"
    world.client.delete(row)
    if back < len(snapshots):
        world.client.hset(row, mapping=snapshots[-1 - back])


@pytest.mark.pain(56)
@pytest.mark.parametrize("back", [1, 2, 99], ids=["one commit lost", "two commits lost", "no row"])
def test_a_row_that_redis_lost_is_restored_and_a_pending_command_answered(make_world: MakeWorld, back: int) -> None:
    world = make_world(told, loses_rows=True)
    shard = world.shard()
    snapshots: list[dict[str, bytes]] = []
    world.checks.append(
        lambda: snapshots.append(row) if (row := world.row("e1")) and row not in snapshots[-1:] else None
    )
    world.start(told, "e1")
    world.run()
    assert world.status("e1") == "waiting"
    before_commit(shard, 1, lambda: lose_last_commits(world, snapshots, back))
    command = world.signal("e1", "word", "go")
    world.run()
    assert [type(reply) for reply in replies(world, Conflict)] == [Conflict]
    assert world.of_type(store_events.Healed) == [store_events.Healed("e1")]
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert outcome.applied
    assert world.inbox() == []
    assert world.show("e1")["result"] == [1, "go", 2]
    assert len(world.ledger.of("e1", "count")) == 1
    names = {"created_at", "flow", "input", "input_hash", "meta", "started_at"}
    assert {name: world.row("e1")[name] for name in names} == {name: snapshots[2][name] for name in names}


@pytest.mark.pain(12, 56)
def test_the_reply_of_a_restore_lost_heals_all_the_same(make_world: MakeWorld) -> None:
    world = make_world(three, loses_rows=True)
    shard = world.shard()
    lost: list[str] = []

    def judge(request: Request) -> str | None:
        if isinstance(request, Commit) and nth(request.expected_rev) == 3 and not lost:
            world.client.delete(part(world).row + "e1")
        if isinstance(request, Restore) and request.commit_id not in lost:
            lost.append(request.commit_id)
            return "lost"
        return None

    shard.judge(judge)
    world.start(three, "e1")
    world.run()
    assert len(lost) == 1
    assert world.of_type(store_events.Healed) == [store_events.Healed("e1")]
    assert world.show("e1")["result"] == 3
    assert len(world.ledger.runs) == 3


@pytest.mark.pain(56)
def test_a_row_that_somebody_else_wrote_is_never_overwritten_but_read_again(make_world: MakeWorld) -> None:
    world = make_world(three)
    shard = world.shard()
    before_commit(
        shard, 3, lambda: world.client.hset(part(world).row + "e1", mapping={"rev": FAR, "commit": "foreign"})
    )
    world.start(three, "e1")
    world.run()
    assert world.of_type(store_events.RowDiverged) == [store_events.RowDiverged("e1")]
    assert world.show("e1")["rev"] > FAR
    assert world.show("e1")["result"] == 3
    assert world.ledger.attempts("e1", "count#2") == [1], "its result was kept until it reached the row"


@pytest.mark.pain(56)
def test_the_third_divergence_within_a_minute_parks_the_execution(make_world: MakeWorld) -> None:
    world = make_world(three)
    shard = world.shard()
    revs = iter(range(FAR, FAR + 100))

    def judge(request: Request) -> None:
        if isinstance(request, Commit) and request.status_to != "parked" and request.expected_rev > 1:
            world.client.hset(part(world).row + "e1", mapping={"rev": next(revs), "commit": "foreign"})

    shard.judge(judge)
    world.start(three, "e1")
    world.run()
    assert len(world.of_type(store_events.RowDiverged)) == 3
    shown = world.show("e1")
    assert shown["status"] == "parked"
    assert shown["error"]["type"] == "crashed"
    assert "RowConflict" in shown["error"]["message"]
    shard.judge(lambda _request: None)
    world.retry("e1")
    world.run()
    assert world.show("e1")["result"] == 3


@pytest.mark.pain(56)
def test_what_a_body_brought_is_forgotten_once_the_row_that_is_read_again_has_it(make_world: MakeWorld) -> None:
    """Its commit was done, the reply was lost, and somebody else wrote the row before it was sent again."""
    world = make_world(three)
    shard = world.shard()

    def judge(request: Request) -> str | None:
        return "lost" if isinstance(request, Commit) and nth(request.expected_rev) == 2 else None

    shard.judge(judge)
    world.start(three, "e1")
    world.run(lambda: any(isinstance(s.request, Commit) and nth(s.request.expected_rev) == 2 for s in world.sent))
    rev = int(world.row("e1")["rev"]) + 1
    world.client.hset(part(world).row + "e1", mapping={"rev": rev, "commit": "foreign"})
    shard.judge(lambda _request: None)
    world.run()
    assert len(world.of_type(store_events.RowDiverged)) == 1
    assert world.show("e1")["result"] == 3
    assert len(world.ledger.runs) == 3
    assert shard.runner._attempts._by_path == {}


@pytest.mark.pain(11, 15)
@pytest.mark.parametrize("kind", ["OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS", "MASTERDOWN"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_what_the_server_refuses_for_now_is_sent_again_and_no_step_starts_meanwhile(
    make_world: MakeWorld, kind: str, number: int
) -> None:
    world = make_world(three)
    shard = world.shard()
    until = [0.0]

    def judge(request: Request) -> Refused | None:
        if isinstance(request, Commit) and nth(request.expected_rev) == number:
            until[0] = until[0] or world.clock.monotonic() + 3
            if world.clock.monotonic() < until[0]:
                return Refused("not now", kind)
        return None

    shard.judge(judge)
    world.start(three, "e1")
    world.run(lambda: until[0])
    before = len(world.ledger.runs)
    world.run(lambda: world.clock.monotonic() >= until[0] - 0.5)
    assert len(world.ledger.runs) == before
    world.run()
    assert world.show("e1")["result"] == 3
    assert [s["attempts"][-1]["n"] for s in world.show("e1")["steps"]] == [1, 1, 1]
    assert len(world.ledger.runs) == 3
    assert world.of_type(store_events.StoreTrouble)[0].reason == "not now"


@pytest.mark.pain(12)
@pytest.mark.parametrize("fate", ["down", "lost", "OOM", "fenced"])
def test_a_dead_letter_is_told_once_it_is_there_and_once_whatever_comes_between(
    make_world: MakeWorld, fate: str
) -> None:
    world = make_world(three)
    shard = world.shard()
    until = [0.0]

    def judge(request: Request) -> Refused | str | None:
        if not isinstance(request, DeadLetter):
            return None
        begins = not until[0]
        until[0] = until[0] or world.clock.monotonic() + (30 if fate == "OOM" else 1)
        if fate == "fenced":
            if begins:
                world.client.delete(part(world).lease)
            return None
        if world.clock.monotonic() < until[0]:
            return Refused("not now", fate) if fate == "OOM" else fate
        return None

    shard.judge(judge)
    world.start(three, "e1")
    world.run()
    world.send("explode", "e1")
    told: list[int] = []
    world.checks.append(lambda: told.append(len(world.of_type(store_events.DeadLettered)) - len(world.dead_letters())))
    world.run(lambda: world.dead_letters() and world.inbox() == [])
    world.run_for(60)
    assert max(told) == 0, "not before it is there"
    assert told[-1] == 0
    assert len(world.dead_letters()) == 1
    assert world.of_type(store_events.SweepFound) == [], "what is on its way is not lost"


def test_scripts_that_the_server_forgot_are_loaded_again(make_world: MakeWorld) -> None:
    world = make_world(reference)
    world.shard()
    world.checks.append(world.client.script_flush)
    play(world)
    check_reference(world, interrupted=False)


@pytest.mark.pain(10)
def test_all_goes_on_after_redis_was_away(make_world: MakeWorld) -> None:
    world = make_world(three)
    world.shard()
    world.start(three, "e1")
    world.run(lambda: world.ledger.of("e1", "count#2"))
    world.weather.down = True
    world.run_for(5)
    assert world.ledger.of("e1", "count#3") == []
    world.weather.down = False
    world.start(three, "e2")
    world.run(lambda: world.ended("e1", "e2"), limit=60)
    assert len(world.ledger.runs) == 6


def test_two_clients_that_start_one_id_make_one_execution(make_world: MakeWorld) -> None:
    world = make_world(three)
    first, second = world.start(three, "e1"), world.start(three, "e1")
    assert isinstance(first, Created)
    assert isinstance(second, Exists)
    assert len(world.inbox()) == 1
    assert world.show("e1")["status"] == "queued"
    world.shard()
    world.run()
    assert len(world.ledger.runs) == 3
    assert len(world.of_type(events.ExecutionBegan)) == 1


@pytest.mark.pain(21)
def test_a_creation_that_redis_lost_and_that_is_repeated_arrives_at_the_same_keys(make_world: MakeWorld) -> None:
    world = make_world(three, loses_rows=True)
    world.shard()
    world.start(three, "e1")
    world.run()
    keys = {path: world.ledger.keys("e1", path) for path in ("count", "count#2", "count#3")}
    world.clock.advance(1000)
    world.client.flushall()
    world.crash()
    world.shard()
    world.start(three, "e1")
    world.run()
    assert len(world.ledger.runs) == 6
    assert {path: world.ledger.keys("e1", path) for path in keys} == keys
    assert all(len(each) == 1 for each in keys.values())
