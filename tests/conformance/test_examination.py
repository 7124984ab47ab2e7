"""What the doctor finds out about a server and a namespace, on every server."""

from __future__ import annotations

import json

import pytest

from stepwell.store.durability import Durability
from stepwell.store.examination import examine
from stepwell.store.guarantees import WorkerFacts, judge
from stepwell.store.namespace import open_namespace
from stepwell.store.replies import number


def look(store, namespace="t", wall_ms=lambda: 0.0, **options):
    return examine(store.client, namespace, wall_ms=wall_ms, version="0.1", **options)


def server_ms(store):
    seconds, micros = store.client.time()
    return number(seconds) * 1000 + number(micros) / 1000


@pytest.mark.one_server
def test_a_namespace_that_is_not_there_is_not_made(store):
    store.client.flushall()
    facts = look(store)
    assert (facts.namespace.format, facts.namespace.partitions, facts.workers) == (None, None, ())
    assert [name for name in store.client.scan_iter() if not name.endswith(b":probe")] == []


def test_a_namespace_is_told_with_what_is_in_it(store):
    open_namespace(store.client, "t", 4, new_secret=lambda: b"s" * 32)
    store.execute(store.create())
    store.execute(store.dead_letter(store.inbox.send(0, {"type": "odd"})))
    store.client.xadd(store.keys.ingress, {"type": "start"})
    facts = look(store)
    space = facts.namespace
    assert (space.name, space.format, space.partitions, space.durability) == ("t", 1, 4, "relaxed")
    assert (space.executions["queued"], space.dead_letters, space.ingress, space.damage) == (1, 1, 1, ())


def test_living_workers_are_told_with_version_and_durability(store):
    open_namespace(store.client, "t", 4, new_secret=lambda: b"s" * 32)
    now = int(server_ms(store))
    later = now + 3_600_000  # they live for longer than a test takes
    for name, beat in {
        "a/0": {"at": later, "version": "0.1", "durability": "aof", "format": 2, "left_alone": 3},
        "b/0": {"at": later},
        "dead/0": {"at": now - 60_000, "version": "0.0"},
    }.items():
        store.workers.beat(name, json.dumps(beat).encode())
    facts = look(store)
    assert facts.workers == (WorkerFacts("a/0", "0.1", "aof", 2, 3), WorkerFacts("b/0"))
    assert facts.durability == Durability()
    assert look(store, durability=Durability("replicated", 2)).durability == Durability("replicated", 2)


@pytest.mark.parametrize(("kept", "judged"), [(b"aof", Durability("aof")), (b"odd", Durability())])
def test_what_the_namespace_promises_is_judged(store, kept, judged):
    open_namespace(store.client, "t", 4, new_secret=lambda: b"s" * 32)
    store.client.hset(store.keys.meta, "durability", kept)
    facts = look(store)
    assert (facts.namespace.durability, facts.durability) == (kept.decode(), judged)


def test_keys_of_foreign_types_are_named(store):
    open_namespace(store.client, "t", 4, new_secret=lambda: b"s" * 32)
    foreign = [store.keys.ingress, store.keys.inbox(2), store.keys.by(1, "queued"), store.keys.workers]
    for key in foreign:
        store.client.set(key, "odd")
    facts = look(store)
    assert sorted(facts.namespace.damage) == sorted(foreign)
    store.client.delete(store.keys.meta)
    store.client.set(store.keys.meta, "odd")
    assert store.keys.meta in look(store).namespace.damage


def test_a_clock_that_differs_is_measured(store):
    facts = look(store, wall_ms=lambda: server_ms(store) - 3_600_000)
    assert len(facts.clock_ms) == len(facts.server.servers)
    assert all(3_500_000 < offset < 3_700_000 for offset in facts.clock_ms.values())


@pytest.mark.real_server
def test_what_a_server_says_of_itself_is_judged(store):
    client = store.client
    before = client.config_get("maxmemory*")
    try:
        assert not [each for each in judge(look(store)) if each.level == "broken"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", 100 * 1024 * 1024)
        assert ["may evict" in each.text for each in judge(look(store)) if each.level == "broken"] == [True]
        client.config_set("min-replicas-to-write", 2)
        assert look(store).server.min_replicas == 2
    finally:
        client.config_set("min-replicas-to-write", 0)
        for name in ("maxmemory", "maxmemory-policy"):
            client.config_set(name, before[name])
