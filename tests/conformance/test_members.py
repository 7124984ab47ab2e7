"""Members: one short entry per shard, read by all."""

from __future__ import annotations

import msgspec
import pytest

from stepwell.core.ownership import Member
from stepwell.store.link import LinkDown, StoreError, StoreRefused

MEMBER = Member(1000, "i1", "host,boot,1,2", parent="host,boot,1,1", format=7)


def test_who_says_that_it_lives_is_read_by_all_with_the_servers_time(store):
    store.members.beat("w/0", MEMBER)
    store.members.beat("w/1", msgspec.structs.replace(MEMBER, state="leaving"))
    before = store.leases.server_time_ms()
    roll = store.members.read()
    assert before <= roll.server_ms <= store.leases.server_time_ms()
    assert roll.members == {"w/0": MEMBER, "w/1": Member(1000, "i1", "host,boot,1,2", "leaving", "host,boot,1,1", 7)}


def test_the_last_word_counts(store):
    store.members.beat("w/0", MEMBER)
    store.members.beat("w/0", msgspec.structs.replace(MEMBER, at=4000))
    assert store.members.read().members["w/0"].at == 4000


def test_who_leaves_is_not_there_any_more(store):
    for each in ("w/0", "w/1", "w/2"):
        store.members.beat(each, MEMBER)
    store.members.leave("w/0", "w/2", "never")
    store.members.leave()
    assert list(store.members.read().members) == ["w/1"]


def test_entries_that_nobody_can_read_are_passed_over_and_fields_to_come_are_no_harm(store):
    store.members.beat("w/0", MEMBER)
    for shard_id, raw in {
        "a": b"",
        "b": b"{",
        "c": b'{"at":"now"}',
        "d": b"\xff",
        "e": b'{"at":1}',
        "f": b"[1]",
    }.items():
        store.client.hset(store.keys.shards, shard_id, raw)
    store.client.hset(store.keys.shards, "new", b'{"at":1,"incarnation":"i","host":"h","more":true}')
    assert sorted(store.members.read().members) == ["new", "w/0"]


def test_without_anybody_it_is_empty(store):
    assert store.members.read().members == {}


def test_a_key_that_holds_something_else_is_an_error_that_does_not_pass(store):
    store.client.set(store.keys.shards, "odd")
    with pytest.raises(StoreError, match="is a string, not the hash") as raised:
        store.members.read()
    assert not isinstance(raised.value, LinkDown | StoreRefused)


def test_who_is_silent_for_an_hour_is_forgotten(store):
    now = store.leases.server_time_ms()
    store.members.beat("old", msgspec.structs.replace(MEMBER, at=now - 3_700_000))
    store.members.beat("silent", msgspec.structs.replace(MEMBER, at=now - 3_500_000))
    assert store.members.forget_silent() == 1
    assert list(store.members.read().members) == ["silent"]
