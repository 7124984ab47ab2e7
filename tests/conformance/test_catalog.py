"""What callers ask: rows, listings, counts, outcomes, living workers."""

from __future__ import annotations

import pytest

from stepwell.core.status import STATUSES
from stepwell.store.link import StoreError


def test_a_row_that_is_not_there_is_empty(store):
    assert store.catalog.row("nobody") == {}
    assert store.catalog.rows([]) == []


def test_many_rows_and_some_of_their_fields_come_in_the_order_asked_for(store):
    for each in ("a", "b"):
        store.execute(store.create(each, flow=f"flow-{each}"))
    assert [row.get("flow") for row in store.catalog.rows(["b", "missing", "a"])] == [b"flow-b", None, b"flow-a"]
    heads = store.catalog.heads(["b", "missing", "a"], ["flow", "absent"])
    assert heads == [{"flow": b"flow-b"}, {}, {"flow": b"flow-a"}]


def test_executions_are_counted_by_status(store):
    for n in range(9):
        store.execute(store.create(f"e{n}"))
    for n in range(4):
        store.execute(store.commit(f"e{n}"))
    assert store.catalog.counts() == dict.fromkeys(STATUSES, 0) | {"queued": 5, "running": 4}


def test_a_command_that_has_not_ended_has_no_outcome(store):
    assert store.catalog.outcome(0, "nobody") is None


def test_a_creation_that_can_not_be_written_is_an_error_that_names_the_execution(store):
    store.client.set(store.keys.row("e1"), "garbage")
    with pytest.raises(StoreError, match="execution e1 could not be created"):
        store.catalog.create(store.create())


def test_workers_live_as_long_as_their_heartbeat_is_fresh(store):
    store.workers.beat("w1", b'{"at": 1000, "flows": ["a"]}')
    store.workers.beat("w2", b'{"at": 9000}')
    assert store.workers.living(11_000) == [{"id": "w1", "at": 1000, "flows": ["a"]}, {"id": "w2", "at": 9000}]
    assert [beat["id"] for beat in store.workers.living(11_001)] == ["w2"]
    store.workers.beat("w1", b'{"at": 11000}')
    store.workers.remove("w2")
    assert [beat["id"] for beat in store.workers.living(11_001)] == ["w1"]


def test_what_is_no_heartbeat_is_passed_over(store):
    for name, odd in {
        "a": "garbage",
        "b": "[1]",
        "c": '{"at": "x"}',
        "d": "{}",
        "e": b"\xff",
        "f": '{"at":true}',
    }.items():
        store.client.hset(store.keys.workers, name, odd)
    store.workers.beat("w1", b'{"at": 1000}')
    assert [beat["id"] for beat in store.workers.living(1000)] == ["w1"]


def test_heartbeats_of_long_gone_workers_are_removed(store):
    store.workers.beat("old", b'{"at": 0}')
    store.workers.beat("silent", b'{"at": 1}')
    assert store.workers.forget_silent(86_400_001) == 1
    assert store.client.hkeys(store.keys.workers) == [b"silent"]
