"""A key of another type than ours in the place of one of ours: whoever meets it says which, and what to do.

By kind: one of each family of keys, and every command.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from fuzz.desk import Desk, in_words
from fuzz.worlds import course, doomed, fuzz_world, job
from sim.harness import World

from stepwell.actors import store_events
from stepwell.store.examination import examine
from stepwell.store.keys import Keys, PartitionKeys
from stepwell.store.leases import LeaseStore, Unanswered
from stepwell.store.strangers import FAMILIES, family_of

COMMANDS = [
    "start job --id e7 --attr customer=c7",
    "start course --id e1",
    "result e1 --timeout 1",
    "show e1",
    "list",
    "list --status error",
    "list --flow course",
    "list --attr customer=c7",
    "list --status error --error ValueError",
    "list --backing-off",
    "tail e1 --no-follow",
    "tail --no-follow",
    "top --once",
    "retry e1",
    "retry --status error --yes",
    "cancel e1",
    "retry --backing-off --step fails --yes",
    "cancel --status waiting --yes",
    "signal e1 word",
    "dead list",
    "dead show 0:1-1",
    "dead replay --all --yes",
    "dead drop --all --yes",
]
SHARED = ["meta", "workers", "shards", "vitals", "ingress"]
LISTS = ["live", "by:queued", "by:waiting", "by:error", "flow:course", "attr:customer=c7", "error:ValueError"]
OTHERS = ["x:e1", "inbox", "outbox", "backoff", "backoff:course", "lease", "epoch", "seq", "suspects", "dead", "events"]
KEYS = [*(f"sim:{name}" for name in SHARED), "{sim:ingress}:dead", *(f"{{sim:0}}:{name}" for name in (*LISTS, *OTHERS))]
# What no command reads or writes (the last one: as nothing backs off there): shards do.
OF_SHARDS = {f"{{sim:0}}:{name}" for name in ("epoch", "seq", "outbox", "suspects", "backoff:course")}


def kind_of(world: World, key: str) -> str:
    found: bytes = world.client.type(key)
    return found.decode()


def put(world: World, key: str) -> None:
    """A list: nothing of ours is one."""
    world.client.delete(key)
    world.client.rpush(key, "a stranger's")


def with_work(world: World) -> None:
    """One that waits, one in error."""
    world.start(course, "e1")
    world.start(doomed, "e2")
    world.run_for(12)


@pytest.mark.pain(31)
@pytest.mark.parametrize("key", KEYS)
def test_every_command_names_the_key_that_is_not_ours(key: str) -> None:
    own = family_of(key)
    assert own is not None
    with fuzz_world() as world:
        shard = world.shard()
        with_work(world)
        world.crash(shard)
        put(world, key)
        desk = Desk(world)
        said = []
        for line in COMMANDS:
            answer = desk(*line.split())
            in_words(answer)
            text = " ".join("".join(answer[1:]).split())
            assert "WRONGTYPE" not in text, line
            if f"'{key}'" in text:
                assert own.kind.removeprefix("z") in text.replace("sorted ", ""), line
                said.append(line)
    assert bool(said) is (key not in OF_SHARDS), said


@pytest.mark.pain(31)
def test_the_doctor_names_them_all() -> None:
    with fuzz_world() as world:
        with_work(world)
        keys = [key for key in KEYS if not key.endswith((":course", ":e1", "=c7", "ValueError"))]
        for key in keys:
            put(world, key)
        facts = examine(world.client, "sim", wall_ms=lambda: 0.0, version="1", partitions=1)
    assert facts.namespace is not None
    assert set(keys) <= set(facts.namespace.damage)


@pytest.mark.pain(31)
@pytest.mark.parametrize("key", ["sim:shards", "{sim:0}:backoff:course", "{sim:0}:by:running", "{sim:0}:events"])
def test_a_shard_that_meets_one_tells_which(key: str) -> None:
    with fuzz_world() as world:
        put(world, key)
        world.start(course, "e1")
        world.shard()
        world.run_for(30)
        told = [each.reason for each in world.of_type(store_events.StoreTrouble)]
        told += [each.error for each in world.of_type(store_events.ActorFailed)]
    assert [each for each in told if key in each], told


@pytest.mark.pain(31)
@pytest.mark.parametrize("name", ["lease", "epoch", "seq"])
def test_a_partition_that_can_t_be_taken_is_told_with_the_key(name: str) -> None:
    with fuzz_world() as world:
        put(world, f"{{sim:0}}:{name}")
        [answer] = LeaseStore(world.client, world.keys, world.scripts).acquire([0], "s/0", "i1", "h,b,1,1", 1000)
    assert isinstance(answer, Unanswered)
    assert f"the key '{{sim:0}}:{name}' in Redis is a list, not the string" in answer.reason


def names(world: World) -> Iterable[str]:
    for raw in world.client.keys("*"):
        yield raw.decode()


def test_what_is_said_of_our_keys_is_so() -> None:
    """Each key that is written has the type that its family says."""
    with fuzz_world() as world:
        world.shard()
        with_work(world)
        world.start(job, "e3")
        world.run_for(2)
        seen = {name: kind_of(world, name) for name in names(world)}
        families = {name: family_of(name) for name in seen}
    assert [name for name, family in families.items() if family is None] == []
    assert [name for name, family in families.items() if family and family.kind != seen[name]] == []
    assert len({family.holds for family in families.values() if family}) > 8


def test_every_key_of_ours_belongs_to_a_family() -> None:
    keys = Keys("shop", 1)
    part = keys.parts[0]
    channels = {part.ended, part.done}
    prefixes = {getattr(part, slot) for slot in PartitionKeys.__slots__ if isinstance(getattr(part, slot), str)}
    own = [name + ("e1" if name.endswith(":") else "") for name in prefixes - channels]
    own += [*part.by.values(), keys.meta, keys.workers, keys.shards, keys.vitals, keys.ingress, keys.ingress_dead]
    own += [keys.code("abc")]
    assert [name for name in own if family_of(name) is None] == []
    assert len(FAMILIES) >= 15
    assert family_of("somebody:else's") is None
