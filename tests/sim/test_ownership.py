"""Several shards share the partitions: they join, leave, die, freeze and come back, and nothing is lost or doubled."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import Retry, flow, gather, sleep, step, wait_for
from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.handover import AGAIN_SECONDS, QUIET_SECONDS
from stepwell.actors.leases import EAGER_SECONDS, LOOK_SECONDS, RENEW_SECONDS
from stepwell.core.ownership import owners
from stepwell.store.leases import TTL_MS

MakeWorld = Callable[..., World]
PARTITIONS = 8
TTL = TTL_MS / 1000


@step
async def toil(seconds: float) -> float:
    await work(seconds)
    return seconds


@flow
async def job(seconds: float = 0.05, steps: int = 5) -> int:
    for _ in range(steps):
        await toil(seconds)
    return steps


@flow
async def rests() -> float:
    await sleep(1000)
    return await toil(1)


@flow
async def asks() -> object:
    return await wait_for("answer")


@step(retry=Retry(max_attempts=1))
async def only_once(seconds: float) -> float:
    await work(seconds)
    return seconds


@step(name="break", retry=Retry(max_attempts=3, base=10, jitter=0))
async def breaks() -> None:
    raise ConnectionError("no")


@flow
async def fragile() -> None:
    await breaks()


@flow
async def wide(seconds: float = 60.0) -> list[float]:
    return await gather(only_once(seconds), toil(0.05), only_once(seconds + 1))


def shared(make_world: MakeWorld, *, audited: bool = True, seed: int | None = None) -> World:
    world = make_world(job, rests, asks, wide, partitions=PARTITIONS, audited=audited, seed=seed)
    world.share()
    return world


def fair(world: World) -> bool:
    """Whether each partition is held by the shard that should hold it."""
    return world.owners() == owners(PARTITIONS, [shard.shard_id for shard in world.shards])


def ids(world: World, count: int) -> list[str]:
    """Executions spread evenly over the partitions."""
    found: list[str] = []
    taken: Counter[int] = Counter()
    number = 0
    while len(found) < count:
        number += 1
        partition = world.keys.partition_of(f"e{number}")
        if taken[partition] <= len(found) // PARTITIONS:
            taken[partition] += 1
            found.append(f"e{number}")
    return found


def doubled(world: World) -> list[tuple[str, str]]:
    """Steps whose bodies ran more than once."""
    ran = Counter((run.execution_id, run.path) for run in world.ledger.runs)
    return [step for step, times in ran.items() if times > 1]


def now(world: World) -> float:
    return world.clock.monotonic()


def pair(world: World) -> tuple[SimShard, SimShard]:
    """Two shards of two workers, each with what is its own."""
    first, second = world.shard(shard_id="a/0"), world.shard(shard_id="b/0")
    world.run(lambda: fair(world), limit=5)
    return first, second


def test_what_an_actor_asked_before_its_partition_leaves_does_not_end_a_step_that_it_has_begun_since(
    make_world: MakeWorld,
) -> None:
    world = shared(make_world)
    shard = world.shard(shard_id="a/0")
    world.start(job, "e1", seconds=1.0, steps=1)
    world.run(lambda: world.ledger.runs)
    quiet: list[int] = []
    partition, ref = world.keys.partition_of("e1"), shard.ref("e1")
    assert ref is not None
    shard.context.dispatcher.tell(m.HandOver([partition], quiet.append))
    shard.context.dispatcher.tell(m.MayStop("e1", ref, handled=0))  # from when it rested
    world.run_for(0.5)
    assert (quiet, shard.in_memory) == ([], ["e1"])
    world.run(lambda: quiet)
    assert world.status("e1") == "completed"


@pytest.mark.pain(9)
def test_what_a_body_brings_after_its_partition_was_lost_is_kept_by_nobody(make_world: MakeWorld) -> None:
    world = shared(make_world)
    zombie = world.shard(shard_id="a/0")
    for name in ids(world, 8):
        world.start(job, name, seconds=30.0, steps=1)
    world.run(lambda: len(world.ledger.runs) == 8)
    world.freeze(zombie)
    world.run_for(TTL + 1)
    world.shard(shard_id="b/0")
    world.run_for(TTL)
    world.thaw(zombie)
    world.run(lambda: world.ended(*ids(world, 8)), limit=100)
    world.run_for(1)
    assert [each.runner._attempts._by_path for each in world.shards] == [{}, {}]


@pytest.mark.pain(6)
@pytest.mark.parametrize("boxed", [True, False], ids=["its box is read", "the machine dies"])
def test_what_waits_for_room_after_a_takeover_goes_on_at_once_where_there_is_room_again(
    make_world: MakeWorld, boxed: bool
) -> None:
    world = shared(make_world)
    busy, dies = (world.shard(shard_id=shard_id, max_running=2) for shard_id in ("a/0", "b/0"))
    world.run(lambda: fair(world), limit=5)
    names: dict[str, list[str]] = {"a/0": [], "b/0": []}
    for name in ids(world, 32):
        of = names[world.owners()[world.keys.partition_of(name)]]
        if len(of) < 2:
            of.append(name)
            world.start(job, name, seconds=3600.0, steps=1)
    world.run(lambda: len(world.ledger.runs) == 4)
    world.crash(dies)
    if boxed:
        world.post_mortem(dies)
    else:
        world.dead_hosts.discard(dies.host)
    world.run_for(TTL + 2)
    assert sorted(world.owners()) == list(range(PARTITIONS))
    assert len(world.ledger.runs) == 4, "there is no room for what the dead one had"
    world.shard(shard_id="b/0", max_running=2)
    back = now(world)
    world.run(lambda: len(world.ledger.runs) == 6, limit=60)
    assert now(world) - back < QUIET_SECONDS
    for name in names["b/0"]:
        assert world.ledger.attempts(name, "toil") == [1, 1]
        assert [each["interruptions"] for each in world.show(name)["steps"]] == [1]
    assert [world.show(name)["steps"][0]["interruptions"] for name in names["a/0"]] == [0, 0]
    assert busy.runner.running == 2


# Joining.


@pytest.mark.pain(6)
def test_who_joins_gets_its_share_within_a_second_and_every_step_runs_once(make_world: MakeWorld) -> None:
    world = shared(make_world)
    world.shard(shard_id="a/0")
    names = ids(world, 32)
    for name in names:
        world.start(job, name, steps=40)
    world.run(lambda: len(world.ledger.runs) > 100)
    joined = now(world)
    world.shard(shard_id="b/0")
    world.run(lambda: fair(world), limit=5)
    assert now(world) - joined < 1.0
    world.run(lambda: world.ended(*names), limit=60)
    assert doubled(world) == []
    assert {run.shard for run in world.ledger.runs} == {"inc1", "inc2"}
    assert all(each["interruptions"] == 0 for name in names for each in world.show(name)["steps"])
    assert world.of_type(store_events.Fenced) == []
    assert world.of_type(store_events.SweepFound) == []


@pytest.mark.slow
def test_no_execution_pauses_for_longer_than_two_seconds_when_shards_come_and_go(make_world: MakeWorld) -> None:
    world = shared(make_world, audited=False)
    world.shard(shard_id="a/0")
    names = ids(world, 16)
    for name in names:
        world.start(job, name, steps=120)
    world.run_for(1)
    for shard_id in ("b/0", "c/0", "b/0", "a/0"):
        known = {shard.shard_id: shard for shard in world.shards}
        if shard_id in known:
            known[shard_id].leave()
            world.run(lambda: not known[shard_id].holdings.partitions(), limit=10)  # noqa: B023
            known[shard_id].release()
        else:
            world.shard(shard_id=shard_id)
        world.run(lambda: fair(world), limit=10)
    world.run(lambda: world.ended(*names), limit=60)
    began: dict[str, list[int]] = {}
    for run in world.ledger.runs:
        began.setdefault(run.execution_id, []).append(run.at_ms)
    pauses = [later - earlier for runs in began.values() for earlier, later in itertools.pairwise(runs)]
    assert max(pauses) < 1000 * (0.05 + LOOK_SECONDS + EAGER_SECONDS)
    assert doubled(world) == []


def test_only_the_partitions_that_must_move_do(make_world: MakeWorld) -> None:
    world = shared(make_world)
    pair(world)
    before = LeaseValues(world)
    world.shard(shard_id="c/0")
    world.run(lambda: fair(world), limit=5)
    moved = {partition for partition, owner in world.owners().items() if owner == "c/0"}
    assert before.changed(world) == moved


class LeaseValues:
    """The leases of a moment."""

    def __init__(self, world: World) -> None:
        self._values = self._read(world)

    def changed(self, world: World) -> set[int]:
        after = self._read(world)
        return {partition for partition, value in self._values.items() if after.get(partition) != value}

    def _read(self, world: World) -> dict[int, bytes | None]:
        return {part.number: world.client.get(part.lease) for part in world.keys.parts}


@pytest.mark.pain(35)
def test_a_long_step_keeps_its_partition_where_it_is_until_it_ends(make_world: MakeWorld) -> None:
    world = shared(make_world)
    world.shard(shard_id="a/0")
    names = ids(world, PARTITIONS)
    for name in names:
        world.start(wide, name, seconds=14)
    world.run(lambda: len(world.ledger.runs) == 3 * len(names))
    world.shard(shard_id="b/0")
    world.run_for(2 * LOOK_SECONDS + QUIET_SECONDS)
    assert set(world.owners().values()) == {"a/0"}
    command = world.signal(names[0], "answer", 1)
    world.run(lambda: world.outcome(names[0], command) is not None, limit=1)  # it is served on
    world.run_for(AGAIN_SECONDS)
    assert set(world.owners().values()) == {"a/0"}
    world.run(lambda: world.ended(*names), limit=60)
    world.run(lambda: fair(world), limit=80)
    assert doubled(world) == []
    assert all(run.shard == "inc1" for run in world.ledger.runs)


@pytest.mark.pain(19)
def test_a_timer_that_a_retry_by_hand_had_overtaken_ends_no_later_backoff(make_world: MakeWorld) -> None:
    """Its word waits behind a commit, and where the partition leaves the outcome of the next attempt overtakes it."""
    world = make_world(fragile)
    shard = world.shard()
    world.start(fragile, "e1")
    world.run(lambda: world.status("e1") == "waiting")
    shard.paused.add("mirror")
    for ask in (world.retry, lambda name: world.signal(name, "word")):
        ask("e1")
        world.settle()
    world.clock.advance(11)
    world.settle()
    actor, partition = shard.actor("e1"), world.keys.partition_of("e1")
    assert actor is not None
    assert [type(each) for each in actor._later or ()] == [m.CommandMail, m.TimerDue]
    shard.mirror.run_once(0)
    world.settle()
    assert world.ledger.attempts("e1", "break") == [1, 2]
    shard.context.dispatcher.tell(m.HandOver([partition], lambda _partition: None))
    world.settle()
    shard.mirror.run_once(0)
    world.settle()
    shard.context.dispatcher.tell(m.ServeOn([partition]))
    shard.paused.clear()
    world.run(lambda: world.ended("e1"))
    second, third = world.ledger.of("e1")[1:]
    assert third.at_ms - second.at_ms >= 10_000


@pytest.mark.slow
def test_what_is_held_up_by_a_handover_that_fails_goes_on_afterwards(make_world: MakeWorld) -> None:
    world = shared(make_world)
    first = world.shard(shard_id="a/0")
    world.run(lambda: not first.holdings.unrecovered(), limit=5)
    theirs = [p for p, owner in owners(PARTITIONS, ["a/0", "b/0"]).items() if owner == "b/0"]
    long, short, sleeper = [name for name in ids(world, 64) if world.keys.partition_of(name) == theirs[0]][:3]
    world.start(wide, long, seconds=1000)
    world.start(rests, sleeper)
    world.run(lambda: len(world.ledger.runs) == 3 and world.status(sleeper) == "waiting")
    world.start(job, short, steps=400, seconds=0.1)
    world.run(lambda: world.ledger.of(short))
    world.shard(shard_id="b/0")
    world.run_for(60)
    runs = world.ledger.of(short)
    gaps = [later.at_ms - earlier.at_ms for earlier, later in itertools.pairwise(runs)]
    assert sum(gap > 1000 for gap in gaps) == 3, "at 1, 13 and 35 s"
    assert max(gaps) <= 1000 * (QUIET_SECONDS + 0.2)
    assert world.ended(short)
    assert world.status(sleeper) == "waiting"
    assert theirs[0] in first.reader._known_until, "it is looked after again"
    assert doubled(world) == []
    assert world.of_type(store_events.SweepFound) == []
    assert world.owners()[theirs[0]] == "a/0"


@pytest.mark.parametrize("what", ["start", "signal", "cancel"])
@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4, 5])
def test_commands_and_starts_that_come_in_the_midst_of_a_handover_have_their_effect_once(
    make_world: MakeWorld, what: str, seed: int | None
) -> None:
    world = shared(make_world, seed=seed)
    world.shard(shard_id="a/0")
    names = ids(world, 24)
    if what != "start":
        for name in names:
            world.start(asks, name)
        world.run(lambda: len(world.statuses()["waiting"]) == len(names))
    second = world.shard(shard_id="b/0")
    commands = []
    for name in names:
        world.run_for(0.05)
        if what == "start":
            world.start(job, name)
        else:
            commands.append(world.signal(name, "answer", 1) if what == "signal" else world.cancel(name))
    world.run(lambda: world.ended(*names), limit=30)
    assert doubled(world) == []
    assert second.holdings.partitions() != []
    assert world.inbox() == []
    world.audit.commands_answered(commands)
    assert {world.status(name) for name in names} == {"cancelled" if what == "cancel" else "completed"}


# Leaving.


@pytest.mark.slow
@pytest.mark.pain(35)
def test_a_drain_gives_each_partition_to_others_as_soon_as_it_is_quiet(make_world: MakeWorld) -> None:
    world = shared(make_world)
    first, _ = pair(world)
    mine = [p for p, owner in world.owners().items() if owner == "a/0"]
    names = [name for name in ids(world, 64) if world.keys.partition_of(name) in mine]
    world.start(wide, names[0], seconds=10)
    ends = now(world) + 11
    for name in names[1:12]:
        world.start(job, name, steps=60)
    world.start(rests, "sleeper")
    world.run_for(2)
    began = now(world)
    first.leave()
    busy = world.keys.partition_of(names[0])
    world.run(lambda: first.holdings.partitions() == [busy], limit=5)
    assert now(world) - began < 1.0
    world.run(lambda: not first.holdings.partitions(), limit=30)
    assert now(world) == pytest.approx(ends, abs=0.01), "the long step has ended"
    first.release()
    world.run(lambda: world.ended(*names[:12]), limit=60)
    assert doubled(world) == []
    assert all(each["interruptions"] == 0 for name in names[:12] for each in world.show(name)["steps"])
    assert world.of_type(store_events.Fenced) == []


@pytest.mark.pain(35)
def test_what_runs_at_the_end_of_the_grace_is_interrupted_and_not_billed(make_world: MakeWorld) -> None:
    world = shared(make_world)
    first, _ = pair(world)
    mine = [p for p, owner in world.owners().items() if owner == "a/0"]
    name = next(name for name in ids(world, 64) if world.keys.partition_of(name) in mine)
    world.start(wide, name, seconds=100)
    world.run(lambda: len(world.ledger.runs) == 3)
    first.leave()
    world.run_for(30)
    first.drain()
    world.settle()
    first.release()
    world.run(lambda: world.ended(name), limit=200)
    assert world.status(name) == "completed"
    assert [each["interruptions"] for each in world.show(name)["steps"]] == [1, 0, 1]
    assert {run.shard for run in world.ledger.of(name, "gather.0/only_once")} == {"inc1", "inc2"}


# Dying.


def test_a_death_that_the_parent_saw_is_made_up_for_within_a_second(make_world: MakeWorld) -> None:
    world = shared(make_world)
    sibling = world.shard(shard_id="a0/1", parent="parent")
    stranger = world.shard(shard_id="b/0")
    dying = world.shard(shard_id="a0/0", parent="parent")
    world.run(lambda: fair(world), limit=5)
    world.run_for(1)
    mine = [p for p, owner in world.owners().items() if owner == "a0/0"]
    names = [name for name in ids(world, 64) if world.keys.partition_of(name) in mine]
    for name in names:
        world.start(job, name, seconds=20, steps=1)
    world.run(lambda: len(world.ledger.runs) == len(names))
    world.run_for(1.23)
    world.crash(dying)
    died = now(world)
    world.run_for(0.3)
    assert set(world.owners().values()) == {"a0/0", "a0/1", "b/0"}, "nobody takes them before the parent has looked"
    world.post_mortem(dying)
    again: dict[str, float] = {}
    world.ledger.on_run.append(lambda run: again.setdefault(run.shard, now(world)))
    world.run(lambda: len(world.ledger.runs) == 2 * len(names), limit=2)
    assert again[sibling.name] - died == pytest.approx(0.3)
    assert again[stranger.name] - died <= 0.3 + LOOK_SECONDS
    world.run(lambda: world.ended(*names), limit=60)
    assert {each["interruptions"] for name in names for each in world.show(name)["steps"]} == {1}


@pytest.mark.parametrize("delay", [0.0, 0.2, 1.4, 2.9])
def test_a_machine_that_dies_is_made_up_for_within_the_ttl_and_a_second(make_world: MakeWorld, delay: float) -> None:
    world = shared(make_world)
    dying, _ = pair(world)
    mine = [p for p, owner in world.owners().items() if owner == "a/0"]
    names = [name for name in ids(world, 64) if world.keys.partition_of(name) in mine]
    for name in names:
        world.start(job, name, seconds=60, steps=1)
    world.run(lambda: len(world.ledger.runs) == len(names))
    renewed = dying.leases._due
    world.run(lambda: dying.leases._due > renewed)
    world.run_for(delay)
    world.crash(dying)
    world.dead_hosts.clear()  # nobody can tell from elsewhere
    died = now(world)
    world.run(lambda: len(world.ledger.runs) == 2 * len(names), limit=60)
    assert TTL - RENEW_SECONDS - 0.1 <= now(world) - died < TTL + 1.0


@pytest.mark.pain(48)
def test_a_worker_that_starts_again_on_its_host_does_not_wait_for_its_own_leases(make_world: MakeWorld) -> None:
    world = shared(make_world)
    for index in range(2):
        world.shard(shard_id=f"a/{index}", parent="parent")
    world.run(lambda: fair(world), limit=5)
    names = ids(world, PARTITIONS)
    for name in names:
        world.start(job, name, seconds=20)
    world.run(lambda: len(world.ledger.runs) == len(names))
    for shard in list(world.shards):
        world.crash(shard)
    world.dead_hosts.add("parent")
    began = now(world)
    world.shard(shard_id="other-name/0", parent="parent-2")
    world.run(lambda: len(world.ledger.runs) == 2 * len(names), limit=5)
    assert now(world) == began


@pytest.mark.pain(9, 40)
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_zombie_notices_before_it_acts_and_is_given_its_share_again(make_world: MakeWorld, seed: int | None) -> None:
    world = shared(make_world, seed=seed, audited=False)
    zombie, heir = pair(world)
    names = ids(world, 16)
    for name in names:
        world.start(job, name, steps=3, seconds=30)
    world.run(lambda: len(world.ledger.runs) == len(names))
    began = len(zombie.runner.at_work)
    world.freeze(zombie)
    world.run_for(15)
    assert set(world.owners().values()) == {"b/0"}
    assert len(world.ledger.runs) == len(names) + began
    world.thaw(zombie)
    world.run_for(1)
    assert zombie.holdings.partitions() == [p for p, owner in sorted(world.owners().items()) if owner == "a/0"]
    world.run(lambda: world.ended(*names), limit=200)
    world.run(lambda: fair(world), limit=80)
    committed = Counter()  # type: ignore[var-annotated]
    for sent in world.sent:
        if sent.done and getattr(sent.reply, "dup", None) is False:
            committed[getattr(sent.request, "execution_id", ""), getattr(sent.request, "expected_rev", 0)] += 1
    assert set(committed.values()) == {1}, "each revision was written by one of them"
    assert heir.holdings.partitions() != []
    for name in names:
        assert [each["status"] for each in world.show(name)["steps"]] == ["completed"] * 3


def test_a_shard_that_can_t_renew_is_replaced_and_joins_again(make_world: MakeWorld) -> None:
    world = shared(make_world, audited=False)
    stuck, _ = pair(world)
    world.start(job, "e1", steps=100, seconds=1)
    world.run(lambda: world.ledger.runs)
    stuck.paused.add("leases")  # its lease thread hangs, all else goes on
    world.run(lambda: set(world.owners().values()) == {"b/0"}, limit=TTL + 1.0)
    stuck.paused.clear()
    world.run(lambda: fair(world), limit=60)
    world.run(lambda: world.ended("e1"), limit=200)
    assert set(world.ledger.attempts("e1", "toil#50")) == {1}


def test_members_that_nobody_can_read_change_nothing(make_world: MakeWorld) -> None:
    world = shared(make_world)
    pair(world)
    before = world.owners()
    world.client.delete(world.keys.shards)
    world.client.set(world.keys.shards, "odd")
    world.run_for(30)
    assert world.owners() == before
    world.client.delete(world.keys.shards)
    world.run_for(10)
    assert fair(world)


@pytest.mark.slow
def test_an_outage_moves_no_partition(make_world: MakeWorld) -> None:
    world = shared(make_world)
    pair(world)
    world.start(job, "e1", steps=3, seconds=20)
    world.run(lambda: world.ledger.runs)
    before = LeaseValues(world)
    world.weather.down = True
    world.run_for(20)
    world.weather.down = False
    world.run_for(20)
    assert before.changed(world) == set()
    world.run(lambda: world.ended("e1"), limit=100)
    assert doubled(world) == []
