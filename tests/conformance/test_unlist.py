"""Executions that are listed and have no row: taken off every list, by the owner alone."""

from __future__ import annotations

import pytest

from stepwell.core.status import STATUSES
from stepwell.store.replies import Broken, Unlisted
from stepwell.store.requests import Fenced, Unlist


def listed(store, execution_id="e1"):
    """The lists that name it."""
    part = store.keys.parts[store.keys.partition_of(execution_id)]
    lists = {"live": part.live, **part.by}
    return {name for name, key in lists.items() if store.score(key, execution_id) is not None}


def unlist(store, execution_id="e1", **changes):
    return Unlist(
        **{
            "partition": store.keys.partition_of(execution_id),
            "execution_id": execution_id,
            "lease": store.lease,
            **changes,
        }
    )


def test_what_has_no_row_is_taken_off_every_list(store):
    store.execute(store.create("e1"))
    store.execute(store.create("e2"))
    store.client.delete(store.keys.row("e1"))
    assert listed(store) == {"live", "queued"}
    assert store.execute(unlist(store)) == Unlisted(2)
    assert listed(store) == set()
    assert listed(store, "e2") == {"live", "queued"}


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_has_a_list_that_is_looked_at(store, status):
    store.client.zadd(store.keys.by(store.keys.partition_of("e1"), status), {"e1": 5})
    assert store.execute(unlist(store)) == Unlisted(1)
    assert listed(store) == set()


def test_what_has_a_row_stays_listed(store):
    store.execute(store.create())
    before = store.dump()
    assert store.execute(unlist(store)) == Unlisted(0)
    assert store.dump() == before


def test_what_has_a_key_of_another_type_stays_listed(store):
    store.execute(store.create())
    store.client.set(store.keys.row("e1"), "x")
    assert store.execute(unlist(store)) == Unlisted(0)
    assert listed(store) == {"live", "queued"}


def test_without_the_lease_nothing_is_taken_off(store):
    store.client.zadd(store.keys.live(store.keys.partition_of("e1")), {"e1": 0})
    before = store.dump()
    assert store.execute(unlist(store, lease="another|1|i|h")) == Fenced(store.lease)
    assert store.dump() == before


def test_an_odd_answer_is_a_fault_and_no_exception(store):
    for odd in (None, b"OK", [], [b"HUH"], {}):
        assert isinstance(unlist(store).parse(odd), Broken)
