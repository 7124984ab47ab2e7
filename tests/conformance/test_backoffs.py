"""The index of what backs off: written with the row by the scripts that write rows, read by shards and clients."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from stepwell.client import Client
from stepwell.core.records import Attempt, Failure, Meta, OpenOp, encode
from stepwell.store import backoffs
from stepwell.store.backoffs import Backoff
from stepwell.store.inbox import START
from stepwell.store.replies import Unlisted
from stepwell.store.requests import DROP, Broken, Committed, Fenced, Unlist


@pytest.fixture
def part(store):
    """The partition of e1, which exists."""
    store.execute(store.create())
    return store.keys.parts[store.keys.partition_of("e1")]


def index(store):
    """By partition and flow, who is listed until when."""
    found = {}
    for part in store.keys.parts:
        for flow in store.client.smembers(part.backoff):
            key = part.backoff_of + flow.decode()
            found[part.number, flow.decode()] = dict(store.client.zrange(key, 0, -1, withscores=True))
    return found


def ask(store, query):
    return query.parse(store.link.call(query.commands))


def back_off(store, execution_id, due, flow="checkout"):
    store.execute(store.create(execution_id, flow=flow))
    return store.execute(store.commit(execution_id, status_to="waiting", live=str(due), flow=flow, backoff=str(due)))


def test_a_commit_lists_what_backs_off_moves_it_and_takes_it_off(store, part):
    assert store.execute(store.commit(flow="checkout", backoff="500")) == Committed(seq=ANY)
    assert index(store) == {(part.number, "checkout"): {b"e1": 500}}
    store.execute(store.commit(expected_rev=2, commit_id="c2", status_from="running", flow="checkout", backoff="700"))
    assert index(store) == {(part.number, "checkout"): {b"e1": 700}}
    store.execute(store.commit(expected_rev=3, commit_id="c3", status_from="running"))
    assert index(store) == {(part.number, "checkout"): {b"e1": 700}}, "it did not change"
    store.execute(store.commit(expected_rev=4, commit_id="c4", status_from="running", flow="checkout", backoff=DROP))
    assert index(store) == {}
    assert not store.client.exists(part.backoff)


def test_a_flow_is_named_as_long_as_anything_of_it_backs_off(store):
    one, other = sorted((f"x{n}" for n in range(40)), key=store.keys.partition_of)[:2]
    number = store.keys.partition_of(one)
    assert number == store.keys.partition_of(other)
    back_off(store, one, 5)
    back_off(store, other, 6)
    gone = {"expected_rev": 2, "commit_id": "c2", "status_from": "waiting", "flow": "checkout", "backoff": DROP}
    store.execute(store.commit(one, **gone))
    assert index(store) == {(number, "checkout"): {other.encode(): 6}}
    store.execute(store.commit(other, **gone))
    assert index(store) == {}


def test_what_is_not_listed_can_be_taken_off(store, part):
    assert store.execute(store.commit(flow="checkout", backoff=DROP)) == Committed(seq=ANY)
    assert index(store) == {}


@pytest.mark.parametrize("live", ["keep", "5"])
def test_with_commands_and_suspects_each_key_stays_in_its_place(store, part, live):
    store.client.hset(part.suspects, "x:e1", "1|b|why")
    done = store.command()
    commit = store.commit(applied=[done], forget="x", flow="checkout", backoff="9", live=live)
    assert store.execute(commit) == Committed(seq=ANY)
    assert not store.client.exists(part.suspects)
    assert store.catalog.outcome(part.number, "cmd1").outcome == done.outcome
    assert index(store) == {(part.number, "checkout"): {b"e1": 9}}


def test_a_time_that_is_none_is_refused_before_anything_is_written(store, part):
    before = store.dump()
    assert isinstance(store.execute(store.commit(live="5", flow="checkout", backoff="soon")), Broken)
    assert store.dump() == before


def test_without_the_lease_nothing_is_listed(store, part):
    store.client.set(part.lease, "another")
    assert store.execute(store.commit(flow="checkout", backoff="5")) == Fenced("another")
    assert index(store) == {}


def test_a_restore_lists_as_memory_has_it(store, part):
    assert store.execute(store.restore(backoff="900")) == Committed(seq=ANY)
    assert index(store) == {(part.number, "checkout"): {b"e1": 900}}
    assert store.execute(store.restore(rev=8, commit_id="c8")) == Committed(seq=ANY)
    assert index(store) == {}
    assert not store.client.exists(part.backoff)


def test_what_has_no_row_is_listed_no_more(store, part):
    store.execute(store.commit(flow="checkout", backoff="5"))
    store.client.delete(part.row + "e1")
    request = Unlist(part.number, "e1", store.lease, ["another", "checkout"])
    assert store.execute(request) == Unlisted(4), "live, its status, its flow, its backoffs"
    assert index(store) == {}


def test_a_flows_name_may_hold_whatever_names_may(store, part):
    name = "A.b-c_" + "x" * 94
    store.execute(store.commit(flow=name, backoff="5"))
    assert index(store) == {(part.number, name): {b"e1": 5}}
    assert ask(store, backoffs.flows(store.keys, [part.number])) == {part.number: [name]}


def test_clients_and_shards_read_who_is_due_next(store):
    for number in range(12):
        back_off(store, f"x{number}", 1000 + number, "ship" if number % 3 else "pay")
    flows = ask(store, backoffs.flows(store.keys, range(4)))
    assert ask(store, backoffs.backoffs(store.keys, flows, 3)) == [
        Backoff(1000, "x0", "pay"),
        Backoff(1001, "x1", "ship"),
        Backoff(1002, "x2", "ship"),
    ]
    assert len(ask(store, backoffs.backoffs(store.keys, flows, 100))) == 12
    lists = backoffs.pairs(flows)
    sizes = [(flow, ask(store, backoffs.size(store.keys, partition, flow))) for partition, flow in lists]
    assert backoffs.by_flow(sizes) == {"pay": (4, 1000), "ship": (8, 1001)}
    assert ask(store, backoffs.size(store.keys, 0, "none")) is None
    counts = store.inbox.count(dict.fromkeys(range(4), START))
    assert counts.backoffs == {"pay": (4, 1000), "ship": (8, 1001)}
    assert counts.waiting == {"timed": 12, "untimed": 0}
    assert store.inbox.count({}).backoffs == {}


@pytest.mark.pain(42)
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_of_what_backs_off_come_as_it_is_due_whatever_else_is_stored(store, limit):
    for number in range(24):
        name, flow, due = f"x{number:02}", "ship" if number % 3 else "pay", 1000 + number // 5
        meta = encode(Meta(flow, store.now, "h1"))
        store.execute(store.create(name, flow=flow, fields=[("meta", meta), ("input", b"{}")]))
        if number % 4 == 0:
            continue  # it is stored, and waits for something else
        op = OpenOp("step", "backoff", "t", 1, "charge", attempt=2, due_at=due)
        failed = Attempt(1, 1, Failure("HttpError", "503"), 1, due, 5)
        sets = [("p:charge", encode(op)), ("a:charge:1", encode(failed))]
        request = store.commit(name, sets=sets, status_to="waiting", live=str(due), flow=flow, backoff=str(due))
        assert isinstance(store.execute(request), Committed)
    with Client("redis://fake", namespace="t", partitions=4, connect=lambda url: store.connect()) as client:
        found, cursor = [], None
        while True:
            page = client.list(limit=limit, backing_off=True, cursor=cursor)
            found += [(line["id"], line["backoff"]["due_at"], line["backoff"]["max_attempts"]) for line in page]
            cursor = page.cursor
            if cursor is None:
                break
        pays = [line["id"] for line in client.list(flow="pay", backing_off=True, step="charge", error="HttpError")]
        assert client.list(backing_off=True, step="other") == []
    everything = [n for n in range(24) if n % 4]
    assert found == [(f"x{n:02}", 1000 + n // 5, 5) for n in everything]
    assert pays == [f"x{n:02}" for n in everything if n % 3 == 0]


def test_where_nothing_backs_off_nothing_is_said(store, part):
    assert ask(store, backoffs.flows(store.keys, range(4))) == {}
    assert ask(store, backoffs.backoffs(store.keys, {}, 5)) == []
    assert store.inbox.count(dict.fromkeys(range(4), START)).backoffs == {}


def test_what_waits_is_counted_by_what_it_waits_for(store):
    for number, live in enumerate(["5", "7", "+inf", "+inf", "+inf"]):
        store.execute(store.create(f"x{number}"))
        status = "parked" if number == 4 else "waiting"
        store.execute(store.commit(f"x{number}", status_to=status, live=live))
    store.execute(store.create("queued"))
    assert store.inbox.count(dict.fromkeys(range(4), START)).waiting == {"timed": 2, "untimed": 2}


@pytest.mark.parametrize("key", ["backoff", "list"])
def test_a_strangers_key_costs_only_what_it_stands_for(store, part, key):
    store.execute(store.commit(flow="checkout", backoff="5"))
    name = part.backoff if key == "backoff" else part.backoff_of + "checkout"
    store.client.delete(name)
    store.client.set(name, "x")
    assert store.inbox.count(dict.fromkeys(range(4), START)).backoffs == {}
    assert store.inbox.count(dict.fromkeys(range(4), START)).sizes["running"] == 1
