"""The lists on which executions stand: written with the row by the scripts that write rows, read by clients."""

from __future__ import annotations

import pytest

from stepwell.client import Client
from stepwell.core.records import Meta, TerminalError, encode
from stepwell.core.status import STATUSES
from stepwell.store.lists import ERROR_TYPE_MAX, every_list
from stepwell.store.replies import Committed, Unlisted
from stepwell.store.requests import DROP, Unlist

GIVEN = {"customer": "c7", "vip": True, "n": 7}


def places(store, execution_id="e1"):
    """By list (without its hash tag) the time by which it stands there."""
    part = store.keys.parts[store.keys.partition_of(execution_id)]
    tag = part.row.removesuffix("x:")
    keys = [key.decode() for key in store.client.scan_iter() if store.client.type(key) == b"zset"]
    found = {key.removeprefix(tag): store.score(key, execution_id) for key in keys if key.startswith(tag)}
    return {key: at for key, at in found.items() if at is not None and key != "live"}


def stands(at, status, *more, flow="checkout"):
    lists = [f"by:{status}", f"flow:{flow}", "attr:customer=c7", "attr:vip=true", "attr:n=7", *more]
    return dict.fromkeys(lists, at)


@pytest.fixture
def created(store):
    """When e1 was created."""
    store.execute(store.create(attributes=GIVEN))
    return store.now


def opened(store):
    return Client("redis://fake", namespace="t", partitions=4, connect=lambda url: store.connect())


def commit(store, rev, before, after, place_before, place, **more):
    request = store.commit(
        expected_rev=rev,
        rev=rev + 1,
        commit_id=f"c{rev}",
        status_from=before,
        status_to=after,
        place_before=place_before,
        place=place,
        attributes=GIVEN,
        **more,
    )
    assert store.execute(request) == Committed(seq=rev)


def test_from_its_creation_on_it_is_found_by_flow_and_attributes(store, created):
    assert places(store) == stands(created, "queued")


def test_while_it_goes_on_it_keeps_its_place_and_the_end_moves_it_everywhere(store, created):
    at = (created, "")
    commit(store, 1, "queued", "running", at, at)
    commit(store, 2, "running", "waiting", at, at, live="5")
    assert places(store) == stands(created, "waiting")
    commit(store, 3, "waiting", "error", at, (created + 900, "ValueError"), live=DROP, ended=True)
    assert places(store) == stands(created + 900, "error", "error:ValueError")
    commit(store, 4, "error", "running", (created + 900, "ValueError"), at, live="0")
    assert places(store) == stands(created, "running")
    commit(store, 5, "running", "completed", at, (created + 999, ""), live=DROP, ended=True)
    assert places(store) == stands(created + 999, "completed")


@pytest.mark.pain(20)
def test_a_retry_that_fails_at_once_moves_it_to_its_new_error(store, created):
    first, second = (created + 1, "ValueError"), (created + 2, "KeyError")
    commit(store, 1, "queued", "error", (created, ""), first)
    commit(store, 2, "error", "error", first, second)
    assert places(store) == stands(created + 2, "error", "error:KeyError")
    assert store.row()["status"] == b"error"


def test_a_commit_that_does_not_move_it_writes_no_list_of_flow_or_attributes(store, created):
    part = store.keys.parts[store.keys.partition_of("e1")]
    store.client.delete(part.flow + "checkout")
    commit(store, 1, "queued", "running", (created, ""), (created, ""))
    commit(store, 2, "running", "running", (created, ""), (created, ""), live="5")
    assert "flow:checkout" not in places(store)


def test_a_restore_takes_it_off_wherever_it_may_have_stood(store, created):
    part = store.keys.parts[store.keys.partition_of("e1")]
    for key in (*part.by.values(), part.error + "Old", part.error + "code diverged", part.error + "New"):
        store.client.zadd(key, {"e1": 1, "bystander": 1})
    request = store.restore(
        status="error", place=(77, "New"), attributes=GIVEN, errors_before=["code diverged", "Old", "New"], live=DROP
    )
    assert store.execute(request) == Committed(seq=1)
    assert places(store) == stands(77, "error", "error:New")
    assert {key for key, at in places(store, "bystander").items() if at == 1} >= {f"by:{each}" for each in STATUSES}


def test_what_has_no_row_is_taken_off_the_lists_of_its_flow(store, created):
    store.client.delete(store.keys.row("e1"))
    request = Unlist(store.keys.partition_of("e1"), "e1", store.lease, ["checkout", "other"])
    assert store.execute(request) == Unlisted(3)
    assert places(store) == {"attr:customer=c7": created, "attr:vip=true": created, "attr:n=7": created}
    with opened(store) as client:
        assert client.list(attributes={"customer": "c7"}) == []


def test_every_list_that_names_an_execution_is_known_from_its_row(store, created):
    """What a purge has to remove."""
    commit(store, 1, "queued", "waiting", (created, ""), (created, ""), backoff="5", live="5")
    commit(store, 2, "waiting", "error", (created, ""), (created, "ValueError"), backoff="9")
    part = store.keys.parts[store.keys.partition_of("e1")]
    known = every_list(part, "checkout", GIVEN, ["ValueError"])
    tag = part.row.removesuffix("x:")
    assert {tag + key for key in places(store)} <= set(known)
    for key in known:
        store.client.zrem(key, "e1")
    assert places(store) == {}
    assert store.score(part.live) is None


def test_a_long_type_of_error_is_listed_by_its_beginning(store, created):
    name = "E" * 1000
    commit(store, 1, "queued", "error", (created, ""), (created, name))
    assert f"error:{name[:ERROR_TYPE_MAX]}" in places(store)


def make(store, name, number):
    """A finished execution, as its owner would have written it."""
    attributes = {"customer": f"c{number % 5}"}
    flow = "ship" if number % 4 else "pay"
    ends = "error" if number % 3 else "completed"
    error = f"E{number % 2}" if ends == "error" else ""
    meta = encode(Meta(flow, store.now, "h1", attributes=attributes))
    store.execute(store.create(name, flow=flow, attributes=attributes, fields=[("meta", meta), ("input", b"{}")]))
    request = store.commit(
        name,
        sets=[("error", encode(TerminalError(error, "no", store.now)))] if error else [],
        status_to=ends,
        live=DROP,
        flow=flow,
        attributes=attributes,
        place_before=(store.now, ""),
        place=(store.now + number // 2, error),
    )
    assert isinstance(store.execute(request), Committed)


FILTERS = [
    {},
    {"status": "error"},
    {"flow": "pay"},
    {"error": "E1"},
    {"attributes": {"customer": "c3"}},
    {"status": "error", "flow": "ship", "error": "E0", "attributes": {"customer": "c1"}},
    {"status": "completed", "since": "2023-11-14T22:13:20.010Z", "until": "2023-11-14T22:13:20.015Z"},
]


@pytest.mark.parametrize("given", FILTERS)
def test_pages_of_any_filter_hold_those_that_fit_in_order_and_once(store, given):
    for number in range(60):
        make(store, f"e{number:02}", number)
    with opened(store) as client:
        everything = client.list()
        assert [each["id"] for each in everything] == [f"e{number:02}" for number in reversed(range(60))]
        found, cursor = [], None
        while True:
            page = client.list(limit=4, cursor=cursor, **given)
            found += page
            cursor = page.cursor
            if cursor is None:
                break
    expected = [each for each in everything if fits(each, int(str(each["id"])[1:]), given)]
    assert found == expected
    assert expected


def fits(line, number, given):
    return (
        given.get("status") in (None, line["status"])
        and given.get("flow") in (None, line["flow"])
        and given.get("error") in (None, line["error"])
        and given.get("attributes") in (None, line["attributes"])
        and ("since" not in given or 10 <= number // 2 <= 15)
    )


def test_attributes_of_a_start_are_shown_and_found_and_a_repeated_start_changes_none(store):
    with opened(store) as client:
        assert client.start("checkout", {}, "e1", attributes=GIVEN, unchecked=True) == "e1"
        assert client.start("checkout", {}, "e1", attributes={"other": 1}, unchecked=True) == "e1"
        assert client.describe("e1")["attributes"] == GIVEN
        (line,) = client.list(attributes={"vip": True, "n": "7"})
        assert line["attributes"] == GIVEN
        assert client.list(attributes={"other": 1}) == []
        assert client.start("checkout", {}, "e2", unchecked=True) == "e2"
        assert client.describe("e2")["attributes"] == {}
