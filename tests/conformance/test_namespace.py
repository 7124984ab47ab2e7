"""A namespace's facts: agreed on once, never silently different."""

from __future__ import annotations

import threading

import pytest

from stepwell.core.errors import InvalidName, StoreUnfit, UsageError
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.keys import Keys
from stepwell.store.namespace import open_namespace, remember

SECRET, OTHER = b"s" * 32, b"o" * 32


def opened(store, partitions=8, secret=None, fresh=SECRET, durability=None):
    return open_namespace(store.client, "n", partitions, secret, new_secret=lambda: fresh, durability=durability)


def test_the_first_to_open_makes_it_and_the_next_one_finds_it(store):
    made = opened(store)
    assert (made.secret, made.partitions, made.keys.partitions) == (SECRET, 8, 8)
    assert made.created_ms <= store.leases.server_time_ms()
    found = opened(store, fresh=OTHER)
    assert (found.secret, found.created_ms) == (SECRET, made.created_ms)
    assert store.client.hgetall("n:meta") == {
        b"format": b"1",
        b"partitions": b"8",
        b"secret": SECRET.hex().encode(),
        b"created": b"%d" % made.created_ms,
        b"durability": b"relaxed",
    }


def test_whoever_does_not_care_takes_the_partitions_that_are_there(store):
    opened(store, 8)
    assert opened(store, None).keys.partitions == 8


def test_two_who_open_a_new_namespace_at_the_same_moment_agree(store):
    for round_ in range(10):
        together = threading.Barrier(2)
        secrets = []

        def open_(mine, round_=round_, together=together, secrets=secrets):
            client = store.connect()
            together.wait()
            secrets.append(open_namespace(client, f"race{round_}", 8, new_secret=lambda: mine).secret)

        racers = [threading.Thread(target=open_, args=(mine,)) for mine in (SECRET, OTHER)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(secrets) == 2
        assert len(set(secrets)) == 1


def test_other_partitions_are_refused_with_both_numbers(store):
    opened(store, 8)
    with pytest.raises(StoreUnfit, match="made with 8 partitions, not 16"):
        opened(store, 16)


def test_another_secret_is_refused_without_showing_any(store):
    opened(store, secret=SECRET)
    assert opened(store, secret=SECRET).secret == SECRET
    with pytest.raises(StoreUnfit, match="another secret") as refused:
        opened(store, secret=OTHER)
    assert SECRET.hex() not in str(refused.value)
    assert OTHER.hex() not in str(refused.value)
    assert SECRET.hex() not in repr(opened(store))


def test_a_newer_format_is_refused_and_left_alone(store):
    store.client.hset("n:meta", mapping={"format": "2", "shape": "new"})
    with pytest.raises(StoreUnfit, match="newer version"):
        opened(store)
    assert store.client.hgetall("n:meta") == {b"format": b"2", b"shape": b"new"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "x"),
        ("partitions", "many"),
        ("partitions", "-1"),
        ("partitions", b"\xff"),
        ("secret", "zz"),
        ("secret", "00"),
        ("secret", ""),
        ("created", "x"),
    ],
)
def test_damaged_facts_are_refused_with_their_name(store, field, value):
    opened(store)
    store.client.hset("n:meta", field, value)
    with pytest.raises(StoreUnfit, match=r"n:meta in Redis is damaged"):
        opened(store, None)


def test_facts_that_redis_lost_are_written_back(store):
    namespace = opened(store)
    facts = store.client.hgetall("n:meta")
    assert not remember(store.link, namespace)
    store.client.flushall()
    assert remember(store.link, namespace)
    assert store.client.hgetall("n:meta") == facts


def test_facts_that_changed_under_a_running_owner_are_refused(store):
    namespace = opened(store)
    store.client.flushall()
    opened(store, secret=OTHER)
    with pytest.raises(StoreUnfit, match="another secret"):
        remember(store.link, namespace)


def test_a_secret_of_another_length_is_refused(store):
    with pytest.raises(StoreUnfit, match="32 bytes"):
        opened(store, secret=b"short")


@pytest.mark.parametrize("name", ["", "a:b", "{x}", "a b", "-a", "x" * 65, "ä", "a\n"])
def test_a_namespace_with_odd_characters_is_refused(name):
    with pytest.raises(InvalidName):
        Keys(name)


@pytest.mark.parametrize("partitions", [0, -1, 16385])
def test_an_impossible_number_of_partitions_is_refused(partitions):
    with pytest.raises(UsageError):
        Keys("n", partitions)


AOF, TWO = Durability("aof"), Durability("replicated", 2)


def beat(store, age_ms=-3_600_000):
    """A worker's heartbeat; by default it lives for as long as a test may be held up."""
    store.client.hset("n:workers", "w1", b'{"at": %d}' % (store.leases.server_time_ms() - age_ms))


def test_its_durability_is_what_the_first_worker_asked_for_and_others_follow(store):
    assert opened(store, durability=TWO).durability == TWO
    assert opened(store).durability == TWO
    beat(store)
    assert opened(store, durability=TWO).durability == TWO


def test_its_durability_changes_only_while_no_worker_lives(store):
    opened(store)
    beat(store)
    with pytest.raises(StoreUnfit, match="write with durability relaxed, not aof: stop them first"):
        opened(store, durability=AOF)
    assert opened(store).durability == RELAXED
    beat(store, age_ms=60_000)
    assert opened(store, durability=AOF).durability == AOF
    assert opened(store).durability == AOF


def test_a_namespace_of_an_older_version_is_relaxed_and_an_odd_durability_is_damage(store):
    opened(store)
    store.client.hdel("n:meta", "durability")
    assert opened(store).durability == RELAXED
    store.client.hset("n:meta", "durability", "always")
    with pytest.raises(StoreUnfit, match="damaged"):
        opened(store)


def test_durability_that_redis_lost_is_written_again(store):
    made = opened(store, durability=AOF)
    store.client.delete("n:meta")
    assert remember(store.link, made)
    assert opened(store).durability == AOF
