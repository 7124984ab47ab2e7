"""Bringing a row back that Redis lost, from its owner's memory."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from stepwell.core.status import STATUSES
from stepwell.store.requests import DROP, Broken, Committed, Conflict, Fenced


@pytest.fixture
def part(store):
    """The partition of e1."""
    return store.keys.parts[store.keys.partition_of("e1")]


def test_a_lost_row_comes_back_with_its_indexes(store, part):
    assert store.execute(store.restore()) == Committed(seq=ANY)
    assert store.row() == {
        "meta": b"{}",
        "flow": b"checkout",
        "input_hash": b"h1",
        "r:charge": b"[1]",
        "rev": b"7",
        "commit": b"c7",
        "status": b"waiting",
        "updated_at": str(store.now + 7000).encode(),
    }
    assert store.score(part.live) == store.now + 9000
    assert store.score(part.by["waiting"]) == store.now + 7000
    assert store.client.get(part.seq) == b"1"


def test_an_older_row_is_replaced_whole_and_leaves_every_other_index(store, part):
    store.execute(store.create())
    for status in STATUSES:
        store.client.zadd(part.by[status], {"e1": 1, "bystander": 1})
    assert store.execute(store.restore()) == Committed(seq=ANY)
    assert "input" not in store.row()
    assert [status for status in STATUSES if store.score(part.by[status]) is not None] == ["waiting"]
    assert all(store.score(part.by[status], "bystander") == 1 for status in STATUSES)


@pytest.mark.parametrize("status", STATUSES)
def test_any_status_can_be_restored(store, part, status):
    assert store.execute(store.restore(status=status, live=DROP)) == Committed(seq=ANY)
    assert [each for each in STATUSES if store.score(part.by[each]) is not None] == [status]
    assert store.score(part.live) is None


def test_a_restored_end_is_told_to_waiting_clients(store):
    listener = store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(store.keys.ended("e1"))
    listener.get_message(timeout=60)
    store.execute(store.restore(status="completed", live=DROP, ended=True))
    assert listener.get_message(timeout=60)["data"] == b"completed"
    listener.close()


def test_the_same_restore_again_changes_nothing(store):
    store.execute(store.restore())
    before = store.dump()
    assert store.execute(store.restore()) == Committed(dup=True, seq=ANY)
    assert store.dump() == before


@pytest.mark.parametrize("rev", [7, 8, 100])
def test_a_row_that_is_not_older_is_left_alone(store, rev):
    store.execute(store.restore(rev=rev, commit_id="foreign"))
    before = store.dump()
    assert store.execute(store.restore()) == Conflict(rev, "foreign")
    assert store.dump() == before


def test_revisions_are_compared_as_numbers(store):
    store.execute(store.restore(rev=9, commit_id="c9"))
    assert store.execute(store.restore(rev=10, commit_id="c10")) == Committed(seq=ANY)


def test_a_row_with_an_unreadable_revision_is_replaced(store, part):
    store.client.hset(part.row + "e1", mapping={"rev": "garbage", "junk": "x"})
    assert store.execute(store.restore()) == Committed(seq=ANY)
    assert "junk" not in store.row()


def test_without_the_lease_nothing_is_restored(store, part):
    store.client.delete(part.lease)
    before = store.dump()
    assert store.execute(store.restore()) == Fenced("")
    assert store.dump() == before


def test_after_a_restore_the_owner_commits_on(store):
    store.execute(store.restore())
    request = store.commit(expected_rev=7, commit_id="c8", status_from="waiting")
    assert store.execute(request) == Committed(seq=ANY)
    assert store.row()["rev"] == b"8"


def test_a_row_of_10_000_fields_is_restored_whole(store):
    fields = [(f"r:{n}", b"%d" % n) for n in range(10_000)]
    assert store.execute(store.restore(fields=fields)) == Committed(seq=ANY)
    row = store.row()
    assert {name: row[name] for name, _ in fields} == dict(fields)


def test_a_key_of_a_foreign_type_in_the_rows_place_is_left_alone(store, part):
    store.client.set(part.row + "e1", "garbage")
    before = store.dump()
    assert isinstance(store.execute(store.restore()), Broken)
    assert store.dump() == before
