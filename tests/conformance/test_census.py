"""What lies in partitions is counted: entries and their age, dead letters, suspects, the ingress once."""

from __future__ import annotations

from stepwell.store.census import Lying
from stepwell.store.inbox import START
from stepwell.store.suspects import Loss, SuspectStore


def lying(store, *partitions):
    return store.inbox.count(dict.fromkeys(partitions, START)).lying


def test_an_empty_namespace_has_nothing(store):
    assert lying(store, 0, 1, 2, 3) == Lying()
    assert lying(store) == Lying()


def test_entries_are_counted_with_when_the_oldest_came(store):
    for partition in (1, 1, 2):
        store.inbox.send(partition, {"type": "signal"})
    oldest = min(int(entry.entry_id.partition("-")[0]) for entry in store.inbox.read({1: "0-0", 2: "0-0"}, None, 9))
    found = lying(store, 1, 2)
    assert (found.entries, found.unread_ms) == (3, oldest)
    assert lying(store, 3) == Lying()


def test_what_was_read_is_old_no_more_and_what_came_later_is(store):
    first, second = (store.inbox.send(1, {"type": "signal"}) for _ in range(2))
    read = {1: first}
    assert store.inbox.count(read).lying.unread_ms == int(second.partition("-")[0])
    assert store.inbox.count({1: second}).lying == Lying(entries=2)


def test_of_entries_that_are_asked_for_those_are_told_that_are_there(store):
    entry = store.inbox.send(1, {"type": "signal"})
    found = store.inbox.count({1: START, 2: START}, [(1, entry), (1, "1-1"), (2, entry)])
    assert found.lying.there == {(1, entry)}


def test_the_ingress_counts_with_partition_0_alone(store):
    store.client.xadd(store.keys.ingress, {"type": "start"})
    store.client.xadd(store.keys.ingress_dead, {"kind": "malformed"})
    assert (lying(store, 0, 1).ingress, lying(store, 0, 1).letters) == (1, 1)
    assert (lying(store, 1).ingress, lying(store, 1).letters) == (0, 0)


def test_letters_and_suspects_are_counted(store):
    entry = store.inbox.send(0, {"type": "odd"})
    store.execute(store.dead_letter(entry))
    (lease,) = store.leases.read([0]).values()
    lost = Loss(0, lease, int(lease.split("|")[1]), {"e1": ()}, ("e1", "e2"), ("5-1",))
    assert SuspectStore(store.client, store.keys, store.scripts).reap([lost], "ab", "it hung") == [0]
    found = lying(store, 0)
    assert (found.letters, found.entries) == (1, 0)
    assert found.suspects == 3, "two executions and an entry; what was cut short is no suspicion"


def test_a_strangers_key_counts_as_empty(store):
    part = store.keys.parts[1]
    for key in (part.inbox, part.suspects, part.dead):
        store.client.set(key, "x")
    assert lying(store, 1) == Lying()
