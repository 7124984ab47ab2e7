"""Dead letters as callers see them: listed, looked at, replayed, dropped."""

from __future__ import annotations

import pytest

from stepwell.core.errors import UnknownLetter, UsageError
from stepwell.core.letters import LETTER_KINDS


def bury(world, source, letter_id, kind="malformed", reason="odd", **fields):
    dead = world.keys.ingress_dead if source == "ingress" else world.keys.dead(source)
    entry = {f"={name}": value for name, value in fields.items()}
    world.redis.xadd(dead, {"kind": kind, "reason": reason, "entry": "5-1", "at": 7, **entry}, id=letter_id)


def ids(world, limit=100, **options):
    return [letter["id"] for letter in world.run(world.talk.dead_letters(limit, **options))]


def test_letters_tell_why_and_what(world):
    bury(world, 2, "12-1", type="signal", data='{"name":"go"}', payload="{", raw=b"\xff")
    (letter,) = world.run(world.talk.dead_letters(5))
    assert letter == {
        "id": "2:12-1",
        "partition": 2,
        "kind": "malformed",
        "reason": "odd",
        "entry": "5-1",
        "at": 7,
        "cut": False,
        "fields": {"type": "signal", "data": {"name": "go"}, "payload": "{", "raw": "\\xff"},
    }
    assert world.run(world.talk.dead_letter("2:12-1")) == letter


def test_a_letter_that_a_stranger_wrote_is_shown_as_far_as_it_goes(world):
    world.redis.xadd(world.keys.dead(0), {"at": "x", "=data": "[" * 5000}, id="9-1")
    (letter,) = world.run(world.talk.dead_letters(5))
    assert (letter["id"], letter["reason"], letter["at"]) == ("0:9-1", "", None)
    assert letter["fields"]["data"] == "[" * 5000


def test_letters_of_all_partitions_and_of_the_ingress_come_newest_first(world):
    bury(world, 0, "10-1")
    bury(world, "ingress", "30-1")
    bury(world, 3, "20-1")
    bury(world, 3, "20-2")
    assert ids(world) == ["ingress:30-1", "3:20-2", "3:20-1", "0:10-1"]
    assert ids(world, 2) == ["ingress:30-1", "3:20-2"]


def test_the_newest_are_found_however_they_are_spread(world):
    for n in range(200):
        bury(world, 1, f"{1000 + 2 * n}-1")
        if n % 50 == 0:
            bury(world, 2, f"{1001 + 2 * n}-1")
    newest = sorted(
        [(1000 + 2 * n, "1") for n in range(200)] + [(1001 + 2 * n, "2") for n in range(0, 200, 50)], reverse=True
    )
    for limit in (1, 20, 100, 203, 500):
        assert ids(world, limit) == [f"{source}:{at}-1" for at, source in newest[:limit]]


@pytest.mark.parametrize(("kind", "hint"), [("no such", ""), ("Malformed", "did you mean 'malformed'?"), ("", "")])
def test_a_kind_that_there_is_not_is_refused_with_all_that_there_are(world, kind, hint):
    with pytest.raises(UsageError) as raised:
        ids(world, reason=kind)
    assert hint in str(raised.value)
    assert all(repr(each) in str(raised.value) for each in LETTER_KINDS)


def test_letters_are_chosen_by_reason_and_partition(world):
    bury(world, 1, "50-1", "malformed", "no type")
    for n in range(60):
        bury(world, 1, f"{100 + n}-1", "no such execution", f"there is no execution e{n}")
    bury(world, "ingress", "60-1", "input", "lacks Order")
    bury(world, "ingress", "70-1", "id taken", "the id of an execution with another input, of a malformed kind")
    assert ids(world, 1, text="no TYPE") == ["1:50-1"]
    assert ids(world, reason="malformed") == ["1:50-1"], "those that only say so are of another kind"
    assert ids(world, reason="no such execution", partition=1)[-1] == "1:100-1"
    assert ids(world, reason="input", text="lacks order") == ["ingress:60-1"]
    assert ids(world, reason="id taken", text="lacks") == []
    assert ids(world, partition="ingress") == ["ingress:70-1", "ingress:60-1"]
    assert len(ids(world, partition="1")) == 61
    assert ids(world, partition=0) == []


@pytest.mark.parametrize("partition", [-1, 4, "x", "", 1.5, True])
def test_a_partition_that_there_is_not_is_named(world, partition):
    with pytest.raises(UsageError, match="there is no partition"):
        ids(world, partition=partition)


def test_a_replayed_letter_is_back_in_its_inbox(world):
    bury(world, 2, "12-1", type="cancel", execution="e1")
    world.run(world.talk.replay_letter("2:12-1"))
    assert [fields for _, fields in world.redis.xrange(world.keys.inbox(2))] == [
        {b"type": b"cancel", b"execution": b"e1"}
    ]
    assert ids(world) == []
    with pytest.raises(UnknownLetter, match="2:12-1"):
        world.run(world.talk.replay_letter("2:12-1"))


def test_a_replayed_letter_of_the_ingress_is_back_there(world):
    bury(world, "ingress", "12-1", type="start", flow="checkout")
    world.run(world.talk.replay_letter("ingress:12-1"))
    assert [fields for _, fields in world.redis.xrange(world.keys.ingress)] == [
        {b"type": b"start", b"flow": b"checkout"}
    ]


def test_a_replay_whose_answer_was_lost_is_done_once(world):
    bury(world, 2, "12-1", type="cancel", execution="e1")
    world.lose_reply_of("EVALSHA")
    world.run(world.talk.replay_letter("2:12-1"))
    assert world.redis.xlen(world.keys.inbox(2)) == 1


def test_a_part_of_an_entry_is_not_replayed(world):
    world.redis.xadd(world.keys.dead(0), {"reason": "x", "cut": "1", "=huge": "xxx"}, id="9-1")
    with pytest.raises(UsageError, match="too large"):
        world.run(world.talk.replay_letter("0:9-1"))
    assert ids(world) == ["0:9-1"]


def test_a_dropped_letter_is_gone_for_good(world):
    bury(world, 2, "12-1")
    world.run(world.talk.drop_letter("2:12-1"))
    assert ids(world) == []
    for ask in (world.talk.drop_letter, world.talk.dead_letter, world.talk.replay_letter):
        with pytest.raises(UnknownLetter):
            world.run(ask("2:12-1"))


@pytest.mark.parametrize("letter_id", ["", "12-1", "99:1-0", "dead", "2:"])
def test_what_is_no_id_of_a_letter_says_how_one_looks(world, letter_id):
    with pytest.raises(UsageError, match="looks like"):
        world.run(world.talk.dead_letter(letter_id))
