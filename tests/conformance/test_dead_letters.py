"""Commands that can't be applied: kept with their reason, answered, never dropped."""

from __future__ import annotations

from stepwell.store.requests import Broken, Buried, Fenced


def test_an_entry_moves_from_the_inbox_to_the_dead_letters_with_its_reason(store):
    entry_id = store.inbox.send(0, {"type": "odd"})
    assert store.execute(store.dead_letter(entry_id)) == Buried()
    assert store.inbox.lengths() == [0, 0, 0, 0]
    (dead,) = store.catalog.dead(10)
    assert dead.partition == 0
    assert dead.fields == {
        "reason": b"unknown type",
        "entry": entry_id.encode(),
        "fields": b'{"type":"odd"}',
        "at": str(store.now).encode(),
    }


def test_burying_the_same_entry_again_adds_nothing(store):
    request = store.dead_letter(store.inbox.send(0, {"type": "odd"}), command_id="c", outcome=b"1")
    store.execute(request)
    before = store.dump()
    assert store.execute(request) == Buried(dup=True)
    assert store.dump() == before


def test_an_entry_that_was_applied_meanwhile_is_not_buried(store):
    store.execute(store.create())
    applied = store.command()
    store.execute(store.commit(applied=[applied]))
    partition = store.keys.partition_of("e1")
    assert store.execute(store.dead_letter(applied.entry_id, partition)) == Buried(dup=True)
    assert store.catalog.dead(10) == []


def test_the_sender_gets_its_answer(store):
    listener = store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(store.keys.command_done(0, "cmd1"))
    listener.get_message(timeout=5)
    entry_id = store.inbox.send(0, {"type": "odd"})
    store.execute(store.dead_letter(entry_id, command_id="cmd1", outcome=b'{"refused":"x"}'))
    assert store.catalog.outcome(0, "cmd1").outcome == b'{"refused":"x"}'
    assert listener.get_message(timeout=5)["data"] == b'{"refused":"x"}'
    listener.close()


def test_without_the_lease_nothing_is_buried(store):
    entry_id = store.inbox.send(0, {"type": "odd"})
    store.client.set(store.keys.lease(0), "another|1|i|h")
    before = store.dump()
    assert store.execute(store.dead_letter(entry_id)) == Fenced("another|1|i|h")
    assert store.dump() == before


def test_random_bytes_and_huge_fields_are_buried_as_they_are(store):
    entry_id = store.inbox.send(0, {"": b"\xff\x00", "huge": b"x" * 1_000_000})
    assert store.execute(store.dead_letter(entry_id, fields=b"\x00\xff" * 400_000)) == Buried()
    assert store.catalog.dead(1)[0].fields["fields"] == b"\x00\xff" * 400_000


def test_a_malformed_entry_id_is_reported_and_changes_nothing(store):
    before = store.dump()
    assert isinstance(store.execute(store.dead_letter("garbage")), Broken)
    assert store.dump() == before


def test_of_the_dead_letters_of_a_partition_the_last_ten_thousand_are_kept(store):
    dead = store.keys.dead(0)
    with store.client.pipeline(transaction=False) as pipe:
        for number in range(10_300):
            pipe.xadd(dead, {"reason": str(number)})
        pipe.execute()
    store.execute(store.dead_letter(store.inbox.send(0, {"type": "odd"}), reason="the last"))
    assert 10_000 <= store.client.xlen(dead) <= 10_200, "whole nodes of the stream are let go"
    assert store.catalog.dead(1)[0].fields["reason"] == b"the last"


def test_dead_letters_are_listed_newest_first_over_all_partitions(store):
    for partition in (0, 1, 2, 3, 0):
        store.execute(store.dead_letter(store.inbox.send(partition, {"n": "1"}), partition))
    ages = [tuple(map(int, dead.entry_id.split("-"))) for dead in store.catalog.dead(3)]
    assert len(ages) == 3
    assert ages == sorted(ages, reverse=True)
