"""Redis loses the last second of what it has acknowledged, and the shard that lives on brings it back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import SimShard, World
from sim.tail import Tail, Witness

from stepwell import flow, gather, sleep, step, wait_for
from stepwell.actors import afterlife as afterlife_module
from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.store.requests import Commit, ReadRev, Request, Restore, Revive

MakeWorld = Callable[..., World]


@step
async def add(n: int, seconds: float = 0.0) -> int:
    await work(seconds)
    return n + 1


@flow
async def quick() -> int:
    return await add(await add(await add(0)))


@flow
async def slow(seconds: float) -> int:
    return await add(await add(await add(0, seconds), seconds), seconds)


@flow
async def rests(seconds: float) -> int:
    first = await add(0)
    await sleep(seconds)
    return await add(first)


@flow
async def listens() -> object:
    first = await add(0)
    word = await wait_for("word")
    return [first, word, await add(1)]


@flow
async def many(seconds: float) -> list[object]:
    return list(await gather(*[slow_branch(n, seconds) for n in range(3)]))


async def slow_branch(n: int, seconds: float) -> int:
    return await add(await add(n, seconds), seconds)


RESULTS: dict[str, object] = {"quick": 3, "slow": 3, "rests": 2, "listens": [1, "go", 2], "many": [2, 3, 4]}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world(quick, slow, rests, listens, many, audited=False)
    made.lease_ttl_ms = 10_000
    made.renew_seconds = 3.0
    return made


def restored(world: World) -> list[str]:
    return [event.execution_id for event in world.of_type(store_events.Healed)]


def asked(world: World, kind: type[Request]) -> list[Request]:
    return [sent.request for sent in world.sent if isinstance(sent.request, kind)]


def test_an_execution_that_has_ended_is_restored_with_its_result_and_its_place_in_the_lists(world: World) -> None:
    tail = Tail(world)
    shard = world.shard()
    tail.mark()
    world.start(quick, "e1")
    world.run(lambda: world.ended("e1"))
    world.settle()
    assert shard.in_memory == []
    before = world.row("e1")
    tail.lose()
    assert world.row("e1") == {}
    world.run(lambda: world.ended("e1"), limit=4)
    after = world.row("e1")
    assert {**after, "commit": b"", "updated_at": b""} == {**before, "commit": b"", "updated_at": b""}
    assert {status: ids for status, ids in world.statuses().items() if ids} == {"completed": ["e1"]}
    assert world.client.zscore(world.keys.live(world.keys.partition_of("e1")), "e1") is None
    assert restored(world) == ["e1"]
    assert len(world.ledger.runs) == 3


def test_whoever_waits_for_long_is_restored_though_nothing_of_it_is_written_for_long(world: World) -> None:
    tail = Tail(world)
    world.shard()
    world.start(rests, "e1", seconds=300)
    world.start(listens, "e2")
    tail.mark()
    world.run_for(0.1)
    tail.lose()
    assert world.status("e1") == world.status("e2") == "queued"
    world.run_for(4)
    assert world.status("e1") == world.status("e2") == "waiting"
    assert sorted(restored(world)) == ["e1", "e2"]
    # It was Redis' copy that mattered: another shard goes on from it.
    world.crash()
    world.shard()
    world.signal("e2", "word", "go")
    world.run(lambda: world.ended("e1", "e2"))
    assert [world.ledger.attempts(i, "add") for i in ("e1", "e2")] == [[1], [1]]


def test_the_next_commit_of_anybody_in_the_partition_tells_of_the_loss_before_a_renewal_does(world: World) -> None:
    tail = Tail(world)
    world.renew_seconds = 1000.0
    world.shard()
    one, other = ids_of_one_partition(world, 2)
    tail.mark()
    world.start(quick, one)
    world.run_for(0.5)
    assert world.status(one) == "completed"
    tail.lose()
    world.start(quick, other)
    world.run_for(0.1)
    assert world.status(one) == world.status(other) == "completed"
    assert restored(world) == [one]


def ids_of_one_partition(world: World, count: int) -> list[str]:
    ids = [f"e{n}" for n in range(40)]
    return [each for each in ids if world.keys.partition_of(each) == world.keys.partition_of(ids[0])][:count]


def test_a_command_that_comes_again_because_its_deletion_was_lost_has_its_effect_once(world: World) -> None:
    tail = Tail(world)
    world.shard()
    world.start(listens, "e1")
    world.run_for(5)
    world.signal("e1", "word", "go")
    tail.mark()
    world.run(lambda: world.ended("e1"))
    tail.lose()
    assert len(world.inbox()) == 1
    world.run_for(30)
    assert world.inbox() == []
    assert world.show("e1")["result"] == [1, "go", 2]
    assert len(world.ledger.runs) == 2
    assert world.dead_letters() == []


def test_a_row_that_is_loaded_before_anybody_has_noticed_is_restored_first(world: World) -> None:
    """The shard has forgotten nothing yet, and does not go on from what Redis has."""
    tail = Tail(world)
    world.renew_seconds = 1000.0
    shard = world.shard()
    world.start(listens, "e1")
    world.run_for(1)
    world.signal("e1", "word", "go")
    tail.mark()
    world.run(lambda: world.ended("e1"))
    world.settle()
    tail.lose()
    assert world.status("e1") == "waiting"
    shard.recall("e1")
    world.run_for(0.1)
    assert world.status("e1") == "completed"
    assert len(world.ledger.runs) == 2


def test_while_redis_is_away_nobody_is_forgotten(world: World) -> None:
    tail = Tail(world)
    world.shard()
    tail.mark()
    world.start(quick, "e1")
    world.run_for(0.5)
    assert world.status("e1") == "completed"
    world.weather.down = True
    world.run_for(0.4)
    tail.lose()
    world.run_for(7)
    world.weather.down = False
    world.run_for(1)
    assert world.status("e1") == "completed"


def test_who_left_long_ago_is_forgotten_when_nothing_is_missing(world: World) -> None:
    shard = world.shard()
    world.run_for(1)
    world.start(quick, "e1")
    world.run_for(1)
    assert len(shard.context.afterlife) == 1
    world.run_for(1.5)
    assert len(shard.context.afterlife) == 1, "the renewal was sent too early for it"
    world.run_for(4)
    assert len(shard.context.afterlife) == 0


def test_what_is_kept_is_bounded_and_the_first_go_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afterlife_module, "KEEP_MAX", 5)
    shard = world.shard()
    for number in range(8):
        world.start(quick, f"e{number}")
        world.run_for(0.01)
    kept = shard.context.afterlife
    assert len(kept) == 5
    assert [number for number in range(8) if kept.newer(f"e{number}", -1)] == [3, 4, 5, 6, 7]


def test_a_partition_that_another_owner_took_is_not_brought_back_by_us(world: World) -> None:
    world.shard()
    first = world.shards[0]
    world.start(quick, "e1")
    world.run_for(0.5)
    first.leases._lose(world.keys.partition_of("e1"))
    world.settle()
    assert len(first.context.afterlife) == 0


def test_rows_are_asked_for_in_small_groups_so_that_commits_pass_between_them(world: World) -> None:
    tail = Tail(world)
    shard = world.shard()
    tail.mark()
    for number in range(300):
        world.start(listens, f"e{number}")
    world.run_for(0.5)
    groups: list[int] = []
    execute = shard.journal.execute

    def count(requests: list[Request]) -> object:
        groups.append(len([each for each in requests if isinstance(each, ReadRev)]))
        return execute(requests)

    shard.journal.execute = count  # type: ignore[method-assign, assignment]
    tail.lose()
    world.run_for(4)
    assert sum(groups) == 300
    assert max(groups) <= 64
    assert len(world.statuses()["waiting"]) == 300
    assert len(asked(world, Restore)) == 300


def test_nothing_is_asked_and_nothing_restored_where_nothing_was_lost(world: World) -> None:
    shard = world.shard()
    for number in range(20):
        world.start(rests, f"e{number}", seconds=5)
    world.weather.lose.add("leases")
    world.run_for(4)
    chance = random.Random(1)
    shard.judge(lambda request: "lost" if isinstance(request, Commit) and chance.random() < 0.05 else None)
    world.run(lambda: world.ended(*[f"e{number}" for number in range(20)]))
    assert world.of_type(store_events.TailLost) == []
    assert asked(world, ReadRev) == asked(world, Revive) == []


def test_leases_that_were_lost_with_the_tail_are_taken_back_and_memory_is_kept(world: World) -> None:
    tail = Tail(world)
    tail.mark()
    shard = world.shard()
    before = [grant.value for grant in shard.holdings.grants()]
    world.start(quick, "e1")
    world.start(listens, "e2")
    world.run_for(0.5)
    tail.lose()
    assert world.client.get(world.keys.epoch(0)) is None
    world.run_for(4)
    assert [grant.value for grant in shard.holdings.grants()] == before
    assert (world.status("e1"), world.status("e2")) == ("completed", "waiting")
    assert world.of_type(store_events.Fenced) == [], "nothing was written meanwhile"
    assert len(world.ledger.runs) == 4


class Trial:
    """A shard under load whose server loses its tail again and again. All is drawn from the seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.tail = Tail(world)
        self.witness = Witness(world)
        self.started: dict[str, str] = {}
        self.told: dict[str, object] = {}  # results that a client has seen
        self.shard: SimShard = world.shard()
        self.shard.judge(self._judge)

    def _judge(self, request: Request) -> None:
        if self.chance.random() < 0.2:
            self.tail.mark()

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self._start()
            self.world.run_for(self.chance.choice([0, 0.01, 0.3, 1.0]))
            self._look()
            if self.chance.random() < 0.3:
                self._signal()
            if self.chance.random() < 0.25:
                self._lose()

    def _start(self) -> None:
        if len(self.started) < 30:
            name, given = self.chance.choice(
                [("quick", {}), ("slow", {"seconds": 0.4}), ("rests", {"seconds": self.chance.choice([0.5, 20])}),
                 ("listens", {}), ("many", {"seconds": 0.3})]
            )  # fmt: skip
            execution_id = f"e{len(self.started)}"
            self.started[execution_id] = name
            self.world.start(name, execution_id, **given)
            # What nobody has read is in nobody's memory: a client would have to start it again.
            self.world.run(lambda: self.world.status(execution_id) != "queued")
            if self.chance.random() < 0.3 and (ref := self.shard.ref(execution_id)):
                ref.tell(m.Passivate())

    def _look(self) -> None:
        for execution_id in self.started:
            if self.world.ended(execution_id):
                self.told.setdefault(execution_id, self.world.show(execution_id)["result"])

    def _signal(self) -> None:
        self.world.signal(self.chance.choice(sorted(self.started)), "word", "go")

    def _lose(self) -> None:
        weather = self.world.weather
        if self.chance.random() < 0.5:  # else it is back before anybody has noticed
            weather.down = True
            self.world.run_for(0.2)
            self.tail.lose()
            self.world.run_for(self.chance.choice([0, 2, 8, 30]))
            weather.down = False
        else:
            self.tail.lose()

    def end(self) -> None:
        for _ in range(20):
            self.world.run_for(10)
            waiting = [i for i in self.started if not self.world.ended(i)]
            if not waiting:
                return
            for execution_id in waiting:
                self.world.signal(execution_id, "word", "go")
        raise AssertionError(f"they never end: {[(i, self.world.show(i)['open']) for i in waiting]}")


@pytest.mark.hang_limit(30)
@pytest.mark.parametrize("seed", range(25))
def test_all_that_was_acknowledged_stays_true_for_a_shard_that_lives(world: World, seed: int) -> None:
    trial = Trial(world, seed)
    trial.run(40)
    trial.end()
    assert trial.tail.losses > 0
    assert {i: world.show(i)["result"] for i in trial.started} == {i: RESULTS[n] for i, n in trial.started.items()}
    assert all(world.show(i)["result"] == result for i, result in trial.told.items())
    trial.witness.check()
    assert trial.shard.crashes == []
    assert world.of_type(store_events.RowDiverged) == []
    assert world.inbox() == []
