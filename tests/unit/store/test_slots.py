"""Keys, slots and masters: what is where in a Redis Cluster."""

from __future__ import annotations

import pytest

from stepwell.store.keys import Keys
from stepwell.store.requests import Command
from stepwell.store.slots import SLOTS, SlotMap, key_of, slot_of

A, B, C = ("a", 7000), ("b", 7001), ("c", 7002)


# As CLUSTER KEYSLOT answers.
@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 12739),
        ("foo", 12182),
        ("{foo}bar", 12182),
        (b"x{foo}bar}", 12182),
        ("foo{}bar", 14292),
        ("foo{{bar}}zap", 4015),
        ("{foo", 13308),
        ("", 0),
    ],
)
def test_the_slot_of_a_key_is_that_of_its_hash_tag(key: str | bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_partitions_lie_in_slots_of_their_own() -> None:
    keys = Keys("stepwell", 64)
    assert len({slot_of(part.lease) for part in keys.parts}) == 64
    assert {slot_of(part.row + "e1") for part in keys.parts} == {slot_of(part.inbox) for part in keys.parts}


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["GET", "k"], "k"),
        (["EVALSHA", "sha", 2, "k1", "k2", "arg"], "k1"),
        (["EVALSHA", "sha", 0, "arg"], None),
        (["EVAL", "return 1", "1", "k"], "k"),
        (["XREAD", "COUNT", 5, "BLOCK", 1, "STREAMS", "s", "0-0"], "s"),
        (["XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">"], "s"),
        (["XGROUP", "CREATE", "s", "g", "0"], "s"),
        (["XINFO", "STREAM", "s"], "s"),
        (["OBJECT", "ENCODING", b"k"], b"k"),
        (["TIME"], None),
        (["PING"], None),
        (["SCRIPT", "LOAD", "return 1"], None),
        (["INFO", "server"], None),
        (["WAIT", 1, 100], None),
        (["SET", 5, "x"], "5"),
    ],
)
def test_the_first_key_of_a_command(command: Command, key: str | bytes | None) -> None:
    assert key_of(command) == key


def reply(*ranges: tuple[int, int, tuple[object, int]]) -> list[object]:
    """What CLUSTER SLOTS answers, with a replica that must not be taken for a master."""
    return [[first, last, [host, port, b"id"], [b"replica", 1, b"id"]] for first, last, (host, port) in ranges]


def test_the_map_is_as_the_nodes_say() -> None:
    slots = SlotMap.read(reply((8192, SLOTS - 1, (b"b", 7001)), (0, 5000, (b"a", 7000))), C)
    assert [slots.master_of(slot) for slot in (0, 5000, 5001, 8191, 8192, SLOTS - 1)] == [A, A, None, None, B, B]
    assert slots.masters == (A, B)
    assert slots.unserved == 3191


@pytest.mark.parametrize("unknown", [b"", None, b"?"])
def test_a_node_that_does_not_know_its_own_name_is_where_it_was_asked(unknown: object) -> None:
    assert SlotMap.read(reply((0, SLOTS - 1, (unknown, 7000))), ("asked", 1)).masters == (("asked", 7000),)


def test_what_moved_is_found_where_it_went() -> None:
    slots = SlotMap([(0, 99, A), (100, SLOTS - 1, B)])
    slots.moved(5, C)
    assert [slots.master_of(slot) for slot in (4, 5, 6, 100)] == [A, C, A, B]
    assert slots.masters == (A, B, C)


def test_what_has_no_key_goes_to_the_same_master_for_everybody_while_that_one_lives() -> None:
    slots = SlotMap([(100, SLOTS - 1, B), (0, 99, A)])
    time: Command = ["TIME"]
    assert slots.route([time, ["GET", "foo"]], ()) == [A, B]
    assert slots.route([time, ["GET", "foo"]], {A}) == [B, B]
    assert slots.route([time], {A, B}) == [A]
    assert SlotMap([]).route([time], ()) == [None]


@pytest.mark.parametrize("master", [A, B])
def test_a_key_can_be_found_for_each_master(master: tuple[str, int]) -> None:
    slots = SlotMap([(0, 8000, A), (8001, SLOTS - 1, B)])
    key = slots.key_at(master, "probe")
    assert key is not None
    assert slots.master_of(slot_of(key)) == master
    assert slots.key_at(C, "probe") is None
