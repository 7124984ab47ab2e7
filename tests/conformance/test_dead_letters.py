"""Commands that can't be applied: kept with their reason, answered, never dropped."""

from __future__ import annotations

import pytest

from stepwell.core.errors import StoreError
from stepwell.store import letters
from stepwell.store.letters import Letter
from stepwell.store.requests import Broken, Buried, Fenced


def ask(store, query):
    return query.parse(store.link.call(query.commands))


def test_an_entry_moves_from_the_inbox_to_the_dead_letters_with_its_reason(store):
    entry_id = store.inbox.send(0, {"type": "odd"})
    assert store.execute(store.dead_letter(entry_id)) == Buried()
    assert store.inbox.lengths() == [0, 0, 0, 0]
    (dead,) = store.catalog.dead(10)
    assert dead == Letter(
        "0", dead.letter_id, "malformed", "unknown type", entry_id, store.now, False, {"type": b"odd"}
    )
    assert dead.id == f"0:{dead.letter_id}"


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
    listener.get_message(timeout=60)
    entry_id = store.inbox.send(0, {"type": "odd"})
    store.execute(store.dead_letter(entry_id, command_id="cmd1", outcome=b'{"refused":"x"}'))
    assert store.catalog.outcome(0, "cmd1").outcome == b'{"refused":"x"}'
    assert listener.get_message(timeout=60)["data"] == b'{"refused":"x"}'
    listener.close()


def test_without_the_lease_nothing_is_buried(store):
    entry_id = store.inbox.send(0, {"type": "odd"})
    store.client.set(store.keys.lease(0), "another|1|i|h")
    before = store.dump()
    assert store.execute(store.dead_letter(entry_id)) == Fenced("another|1|i|h")
    assert store.dump() == before


def test_random_bytes_and_large_fields_are_buried_as_they_are(store):
    fields = {b"": b"\xff\x00", b"reason": b"mine", b"=x": b"y", b"large": b"x" * 1_048_576}
    entry_id = store.client.xadd(store.keys.inbox(0), fields).decode()
    assert store.execute(store.dead_letter(entry_id)) == Buried()
    (dead,) = store.catalog.dead(1)
    assert {name.encode(): value for name, value in dead.fields.items()} == fields
    assert (dead.reason, dead.cut) == ("unknown type", False)


@pytest.mark.parametrize(
    "fields",
    [{"huge": b"x" * 1_200_000}, {str(n): b"y" for n in range(9_000)}, {b"n" * 1_200_000: b"", "last": b"z"}],
    ids=["a field", "many fields", "a name"],
)
def test_of_an_entry_too_large_for_any_command_the_beginning_is_kept(store, fields):
    entry_id = store.client.xadd(store.keys.inbox(0), fields).decode()
    assert store.execute(store.dead_letter(entry_id)) == Buried()
    (dead,) = store.catalog.dead(1)
    assert dead.cut
    assert 1 <= len(dead.fields) <= 100
    assert sum(len(name) + len(value) for name, value in dead.fields.items()) < 10_000


def test_a_malformed_entry_id_is_reported_and_changes_nothing(store):
    before = store.dump()
    assert isinstance(store.execute(store.dead_letter("garbage")), Broken)
    assert store.dump() == before


@pytest.mark.one_server
def test_of_the_dead_letters_of_a_partition_the_last_ten_thousand_are_kept(store):
    dead = store.keys.dead(0)
    with store.client.pipeline(transaction=False) as pipe:
        for number in range(10_300):
            pipe.xadd(dead, {"reason": str(number)})
        pipe.execute()
    store.execute(store.dead_letter(store.inbox.send(0, {"type": "odd"}), reason="the last"))
    assert 10_000 <= store.client.xlen(dead) <= 10_200, "whole nodes of the stream are let go"
    assert store.catalog.dead(1)[0].reason == "the last"


def test_dead_letters_are_listed_newest_first_over_all_partitions(store):
    for partition in (0, 1, 2, 3, 0):
        store.execute(store.dead_letter(store.inbox.send(partition, {"n": "1"}), partition))
    ages = [dead.age for dead in store.catalog.dead(3)]
    assert len(ages) == 3
    assert ages == sorted(ages, reverse=True)


def test_a_letter_is_put_back_as_it_came_and_is_gone(store):
    fields = {b"type": b"cancel", b"execution": b"e1", b"odd \xff": b"\x00"}
    store.execute(store.dead_letter(store.client.xadd(store.keys.inbox(2), fields).decode(), 2))
    (dead,) = store.catalog.dead(1)
    entry_id = ask(store, letters.replay(store.keys, store.scripts, dead.source, dead.letter_id))
    assert store.client.xrange(store.keys.inbox(2)) == [(entry_id.encode(), fields)]
    assert store.catalog.dead(10) == []
    assert ask(store, letters.letter(store.keys, "2", dead.letter_id)) is None


def test_of_two_who_replay_one_letter_one_does(store):
    store.execute(store.dead_letter(store.inbox.send(0, {"type": "odd"})))
    (dead,) = store.catalog.dead(1)
    replay = letters.replay(store.keys, store.scripts, dead.source, dead.letter_id)
    assert [ask(store, replay) is None for _ in range(3)] == [False, True, True]
    assert store.inbox.lengths() == [1, 0, 0, 0]


def test_a_letter_that_holds_a_part_of_its_entry_only_stays_where_it_is(store):
    store.execute(store.dead_letter(store.inbox.send(0, {"huge": b"x" * 1_200_000})))
    store.client.xadd(store.keys.dead(0), {"reason": "a stranger wrote this"})
    before = store.dump()
    for dead in store.catalog.dead(2):
        with pytest.raises(StoreError, match="too large to be kept whole"):
            ask(store, letters.replay(store.keys, store.scripts, dead.source, dead.letter_id))
    assert store.dump() == before


def test_a_dropped_letter_is_gone(store):
    store.execute(store.dead_letter(store.inbox.send(3, {"type": "odd"}), 3))
    (dead,) = store.catalog.dead(1)
    drop = letters.drop(store.keys, dead.source, dead.letter_id)
    assert [ask(store, drop), ask(store, drop)] == [True, False]
    assert store.catalog.dead(1) == []


@pytest.mark.parametrize(
    ("letter_id", "place"),
    [
        ("3:12-0", ("3", "12-0")),
        ("03:12-0", ("3", "12-0")),
        ("ingress:1-2", ("ingress", "1-2")),
        ("4:12-0", None),
        ("-1:12-0", None),
        ("3:12", None),
        ("x:1-0", None),
        ("3:1-0 ", None),
        ("", None),
    ],
)
def test_an_id_names_the_stream_of_its_letter(store, letter_id, place):
    assert letters.parse_id(store.keys, letter_id) == place
