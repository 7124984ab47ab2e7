"""The ingress as its consumers see it: shared out, kept until finished, claimed from the dead, never growing."""

from __future__ import annotations

import pytest

from stepwell.core.errors import StoreError
from stepwell.store.ingress import GROUP, START, BuryIngress, IngressStore
from stepwell.store.requests import Broken, Buried


@pytest.fixture
def other(store):
    """Another shard's view."""
    return IngressStore(store.link, "w/1")


def add(store, **fields):
    return store.client.xadd(store.keys.ingress, fields or {"type": "start"}).decode()


def ids(entries):
    return [entry.entry_id for entry in entries]


def pending(store):
    return store.client.xpending(store.keys.ingress, GROUP)["pending"]


def test_what_lay_there_before_the_group_is_read_too(store):
    first = add(store, type="start", flow="checkout")
    (entry,) = store.ingress.read(None, 10)
    assert (entry.entry_id, entry.fields) == (first, {"type": b"start", "flow": b"checkout"})


def test_the_group_may_be_made_again_at_any_time(store):
    for _ in range(2):
        store.ingress.ensure()
    assert [group["name"] for group in store.client.xinfo_groups(store.keys.ingress)] == [GROUP.encode()]


def test_each_entry_goes_to_one_consumer_and_waits_there_until_it_is_finished(store, other):
    entries = [add(store) for _ in range(4)]
    assert ids(store.ingress.read(None, 2)) == entries[:2]
    assert ids(other.read(None, 10)) == entries[2:]
    assert other.read(None, 10) == []
    assert ids(store.ingress.mine(START, 10)) == entries[:2]
    assert ids(store.ingress.mine(entries[0], 10)) == entries[1:2]
    store.ingress.finish(entries[:2])
    assert store.ingress.mine(START, 10) == []
    assert store.client.xlen(store.keys.ingress) == 2
    assert store.ingress.oldest() == entries[2]
    other.finish(entries[2:])
    assert (store.client.xlen(store.keys.ingress), pending(store), store.ingress.oldest()) == (0, 0, None)


def test_a_removed_entry_that_was_not_acknowledged_is_told_as_gone(store):
    entry = add(store)
    store.ingress.read(None, 1)
    store.client.xdel(store.keys.ingress, entry)
    (found,) = store.ingress.mine(START, 10)
    assert (found.entry_id, found.fields) == (entry, {})
    store.ingress.finish([entry])
    assert pending(store) == 0


def test_what_another_left_too_long_can_be_claimed(store, other):
    entry = add(store)
    other.read(None, 10)
    assert store.ingress.claim(60_000, 10) == []
    assert ids(store.ingress.claim(0, 10)) == [entry]
    assert other.mine(START, 10) == []
    assert ids(store.ingress.mine(START, 10)) == [entry]


def test_a_claimed_entry_that_is_removed_leaves_nothing_pending(store, other):
    entry = add(store)
    other.read(None, 10)
    store.client.xdel(store.keys.ingress, entry)
    store.ingress.finish(ids(store.ingress.claim(0, 10)))  # Redis 6.2 tells it as gone, later ones forget it themselves
    assert pending(store) == 0


@pytest.mark.real_server
def test_what_one_asks_for_again_is_not_claimed_by_others(store, other):
    entry = add(store)
    other.read(None, 10)
    for owner, claims in ((other, []), (store.ingress, [entry])):
        store.client.xclaim(store.keys.ingress, GROUP, "w/1", 0, [entry], idle=100_000)
        owner.mine(START, 10)
        assert ids(store.ingress.claim(50_000, 10)) == claims


def test_an_entry_that_belongs_to_nobody_is_adopted(store):
    entries = [add(store) for _ in range(4)]
    for consumer, count in (("gone", 1), ("alive", 1)):
        IngressStore(store.link, consumer).read(None, count)
    store.client.xgroup_delconsumer(store.keys.ingress, GROUP, "gone")
    assert ids(store.ingress.adopt()) == entries[:1]
    assert ids(store.ingress.mine(START, 10)) == entries[:1]
    assert store.ingress.adopt() == []
    assert ids(store.ingress.read(None, 10)) == entries[2:]


def test_only_an_idle_consumer_without_entries_is_forgotten(store, other):
    entry = add(store)
    store.ingress.read(None, 1)
    other.read(None, 1)
    assert other.idlers(60_000) == []
    assert other.idlers(0) == ["w/0"]
    assert not other.forget("w/0")
    assert ids(store.ingress.mine(START, 10)) == [entry]
    store.ingress.finish([entry])
    assert other.forget("w/0")
    assert other.forget("nobody")
    assert other.idlers(0) == []


def test_leaving_removes_the_consumer_unless_it_has_entries(store):
    entry = add(store)
    store.ingress.read(None, 1)
    store.ingress.leave()
    assert len(store.client.xinfo_consumers(store.keys.ingress, GROUP)) == 1
    store.ingress.finish([entry])
    store.ingress.leave()
    assert store.client.xinfo_consumers(store.keys.ingress, GROUP) == []


def test_an_entry_is_buried_beside_the_ingress_and_can_be_replayed(store):
    entry = add(store, type="odd", x=b"\xff")
    store.ingress.read(None, 1)
    request = BuryIngress(entry, "malformed", "why not", store.now)
    assert store.execute(request) == Buried()
    assert store.execute(request) == Buried(dup=True)
    (letter,) = store.catalog.dead(5)
    assert (letter.source, letter.kind, letter.reason, letter.entry) == ("ingress", "malformed", "why not", entry)
    assert letter.fields == {"type": b"odd", "x": b"\xff"}
    assert (store.client.xlen(store.keys.ingress), pending(store)) == (0, 0)
    assert isinstance(store.execute(BuryIngress("garbage", "malformed", "x", 1)), Broken)


def test_a_stream_that_was_removed_is_made_again(store):
    store.ingress.read(None, 1)
    store.client.delete(store.keys.ingress)
    assert store.ingress.read(None, 1) == []
    entry = add(store)
    assert ids(store.ingress.read(None, 1)) == [entry]
    store.client.xgroup_destroy(store.keys.ingress, GROUP)
    assert ids(store.ingress.read(None, 1)) == [entry], "a new group begins at the beginning"


@pytest.mark.real_server
def test_a_key_of_a_foreign_type_is_reported(store):
    store.client.set(store.keys.ingress, "not a stream")
    for ask in (lambda: store.ingress.read(None, 1), lambda: store.ingress.claim(0, 1), store.ingress.ensure):
        with pytest.raises(StoreError, match="is a string, not the stream"):
            ask()


@pytest.mark.real_server
def test_a_read_that_blocks_ends_when_an_entry_comes(store, other):
    import threading

    store.ingress.read(None, 1)
    found = []
    reader = IngressStore(type(store.link)(store.connect(), store.keys, store.scripts), "w/2")
    thread = threading.Thread(target=lambda: found.extend(reader.read(60_000, 1)))
    thread.start()
    entry = add(store)
    thread.join(30)
    assert ids(found) == [entry]
