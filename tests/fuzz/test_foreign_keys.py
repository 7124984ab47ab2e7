"""Keys of a partition that strangers wrote: the shard lives, others go on, and so does it once they are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fuzz.budget import fuzz
from fuzz.desk import Desk, in_words
from fuzz.values import odd_bytes
from fuzz.worlds import course, fuzz_world, job
from hypothesis import example, given, note
from hypothesis import strategies as st
from sim.harness import World

from stepwell.actors import store_events

BROKEN, SOUND = 0, 1

Put = Callable[[World, str, bytes, bytes], object]

TYPES: dict[str, Put] = {
    "string": lambda world, key, a, b: world.client.set(key, a),
    "hash": lambda world, key, a, b: world.client.hset(key, a, b),
    "list": lambda world, key, a, b: world.client.rpush(key, a, b),
    "set": lambda world, key, a, b: world.client.sadd(key, a, b),
    "sorted set": lambda world, key, a, b: world.client.zadd(key, {a: 5.0, b: -1.0}),
    "stream": lambda world, key, a, b: world.client.xadd(key, {a: b}),
}
OWN = {
    "backoff": "set",
    "backoff:course": "sorted set",
    "live": "sorted set",
    "by:queued": "sorted set",
    "by:running": "sorted set",
    "by:waiting": "sorted set",
    "by:parked": "sorted set",
    "by:completed": "sorted set",
    "lease": "string",
    "epoch": "string",
    "seq": "string",
    "suspects": "hash",
    "outbox": "stream",
    "dead": "stream",
    "events": "stream",
    "inbox": "stream",
}
names = st.sampled_from(
    [b"victim0", b"x:victim0", b"i:victim0", b"e:1-1", b"a|1|b|h,b,1,1", b"7", b"7|released", b"7|boxed", b"-1", b"1e9"]
)
values = names | odd_bytes | st.sampled_from([b"3||it hung", b"[]", b'[["t",1,true]]', b"99999999999999999999"])


def of_partition(world: World, partition: int, prefix: str) -> list[str]:
    found = (f"{prefix}{n}" for n in range(1000))
    return [each for each in found if world.keys.partition_of(each) == partition][:2]


@st.composite
def writings(draw: st.DrawFn) -> tuple[str, str, bytes, bytes]:
    """A key, as what it is written, and with what."""
    name = draw(st.sampled_from(sorted(OWN)))
    kind = draw(st.sampled_from([OWN[name], OWN[name], *TYPES]))
    return name, kind, draw(values), draw(values)


@pytest.mark.pain(31)
@fuzz(10)
@given(st.lists(writings(), min_size=1, max_size=3, unique_by=lambda each: each[0]), st.booleans(), st.booleans())
@example([("lease", "hash", b"a", b"b"), ("live", "string", b"a", b"b")], True, True)
@example([("inbox", "string", b"a", b"b"), ("by:waiting", "string", b"a", b"b")], True, True)
@example([("seq", "string", b"victim0", b"")], True, False)
@example([("suspects", "hash", b"i:victim0", b'[{"x":' + b"[" * 5000)], True, True)
def test_strangers_keys_stop_at_most_their_partition(
    written: list[tuple[str, str, bytes, bytes]], takes_over: bool, is_gone: bool
) -> None:
    """`is_gone`: what is ours was removed before, not only added to."""
    with fuzz_world(partitions=2) as world:
        world.share()
        shard = world.shard()
        broken, sound = of_partition(world, BROKEN, "victim"), of_partition(world, SOUND, "good")
        world.start(course, broken[0], failures=0)
        world.start(course, sound[0], failures=0)
        world.run_for(4)
        if takes_over:
            world.crash(shard)
        touched = []
        for name, kind, first, second in written:
            key = f"{{sim:{BROKEN}}}:{name}"
            if is_gone or kind != OWN[name]:
                world.client.delete(key)
            TYPES[kind](world, key, first, second)
            touched.append(key)
        if takes_over:
            shard = world.shard()
        desk = Desk(world)
        for line in ("list", "dead list", "doctor --namespace sim", "top --once"):
            in_words(desk(*line.split()))
        world.start(job, sound[1])
        in_words(desk("start", "job", "--id", broken[1]))
        for each in (broken[0], sound[0]):
            in_words(desk("signal", each, "word"))
            in_words(desk("signal", each, "last"))
        world.run(lambda: world.ended(*sound), limit=60)
        assert world.show(sound[0])["result"] == [1, [1, None], None]
        world.run_for(20)
        note(str(world.of_type(store_events.ActorFailed)))
        assert world.shards == [shard]
        assert {failed.execution_id for failed in world.of_type(store_events.ActorFailed)} <= set(broken)
        world.client.delete(*touched)
        world.run_for(40)
        assert world.shards == [shard]
        in_words(desk("start", "job", "--id", broken[1]))
        in_words(desk("list"))
        if all(name in ("lease", "epoch") for name, *_ in written):
            for each in ("word", "last"):
                world.signal(broken[0], each)
            world.run(lambda: world.ended(*broken), limit=60)
