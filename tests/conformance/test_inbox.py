"""What a partition's owner reads: inbox entries and due executions."""

from __future__ import annotations

import pytest

from stepwell.store.inbox import START
from stepwell.store.link import Link
from stepwell.store.requests import Applied

ALL = dict.fromkeys(range(4), START)


def test_entries_of_many_partitions_come_with_where_they_are_from(store):
    sent = [(p, store.inbox.send(p, {"type": "signal", "n": n})) for n in range(3) for p in (0, 2)]
    read = store.inbox.read(ALL, None, 10)
    assert sorted((entry.partition, entry.entry_id) for entry in read) == sorted(sent)
    assert {entry.fields["type"] for entry in read} == {b"signal"}


def test_reading_goes_on_after_the_last_entry_seen_and_takes_so_many_of_each(store):
    ids = [store.inbox.send(1, {"n": n}) for n in range(5)]
    store.inbox.send(3, {"n": 9})
    first = store.inbox.read(ALL, None, 2)
    assert [entry.entry_id for entry in first if entry.partition == 1] == ids[:2]
    assert [entry.entry_id for entry in store.inbox.scan(1, ids[1], 9)] == ids[2:]
    assert store.inbox.scan(1, ids[-1], 9) == []


def test_what_is_not_applied_is_found_again_from_the_start(store):
    store.execute(store.create())
    partition = store.keys.partition_of("e1")
    first, second = store.command(command_id="a"), store.command(command_id="b")
    doorbell = store.inbox.scan(partition, START, 1)[0].entry_id
    store.execute(store.commit(applied=[first]))
    left = [entry.entry_id for entry in store.inbox.scan(partition, START, 9)]
    assert left == [doorbell, second.entry_id]


@pytest.mark.one_server
@pytest.mark.parametrize(("asked", "sent"), [(0, 1), (1, 1), (1000, 1000), (60_000, 4000)])
def test_a_read_never_blocks_for_ever_nor_past_the_socket_timeout(store, monkeypatch, asked, sent):
    commands = []
    monkeypatch.setattr(Link, "call", lambda self, batch: commands.extend(batch) or [None])
    assert store.client.get_connection_kwargs()["socket_timeout"] == 5
    assert store.inbox.read({0: START}, asked, 5) == []
    assert commands[0][3:5] == ["BLOCK", sent]


def test_no_partition_is_nothing_to_read(store):
    assert store.inbox.read({}, 1000, 5) == []


def test_garbage_in_the_inbox_is_read_as_it_is(store):
    store.client.xadd(store.keys.inbox(0), {b"\xff\xfe": b"\x00", b"": b"", b"type": b"\xff" * 1000})
    (entry,) = store.inbox.read(ALL, None, 10)
    assert entry.fields == {"\\xff\\xfe": b"\x00", "": b"", "type": b"\xff" * 1000}


def test_due_executions_come_most_overdue_first(store):
    store.client.zadd(store.keys.live(0), {"late": 50, "now": 100, "at once": 0, "later": 101, "untimed": "+inf"})
    assert store.inbox.due(0, 100, 10) == [("at once", 0.0), ("late", 50.0), ("now", 100.0)]
    assert store.inbox.due(0, 100, 1) == [("at once", 0.0), ("late", 50.0)]
    assert store.inbox.due(1, 100, 10) == []


@pytest.mark.parametrize("many", [0, 3, 1700])
def test_all_unfinished_executions_are_seen(store, many):
    expected = {f"e{n}": float(n) for n in range(many)}
    if expected:
        store.client.zadd(store.keys.live(0), expected)
    seen = [member for chunk in store.inbox.unfinished(0) for member in chunk]
    assert dict(seen) == expected


def test_what_is_unfinished_all_the_while_is_seen_though_others_come_and_go(store):
    live = store.keys.live(0)
    store.client.zadd(live, {f"stays{n}": n for n in range(1500)} | {f"goes{n}": n for n in range(1500)})
    seen = set()
    for chunk in store.inbox.unfinished(0):
        seen.update(member for member, _ in chunk)
        store.client.zrem(live, *(f"goes{n}" for n in range(1500)))
        store.client.zadd(live, {f"comes{n}": n for n in range(300)})
    assert {f"stays{n}" for n in range(1500)} <= seen


def test_parked_executions_are_listed(store):
    store.client.zadd(store.keys.by(2, "parked"), {"a": 1, "b": 2})
    assert store.inbox.parked([0, 2]) == [[], ["a", "b"]]
    assert store.inbox.parked([]) == []


def test_what_falls_due_in_a_window_is_found_by_partition(store):
    inf = float("inf")
    store.client.zadd(store.keys.live(0), {"at once": 0, "late": 50, "now": 100, "later": 101, "untimed": "+inf"})
    store.client.zadd(store.keys.live(2), {"other": 70})
    windows = {0: (-inf, 100.0), 1: (-inf, 100.0), 2: (60.0, 70.0)}
    assert store.inbox.falling_due(windows) == [
        (0, [("at once", 0.0), ("late", 50.0), ("now", 100.0)]),
        (1, []),
        (2, [("other", 70.0)]),
    ]
    assert store.inbox.falling_due({0: (100.0, 200.0), 2: (70.0, 100.0)}) == [(0, [("later", 101.0)]), (2, [])]
    assert store.inbox.falling_due({0: (101.0, inf)}) == [(0, [("untimed", inf)])]
    assert store.inbox.falling_due({}) == []


def test_the_time_of_the_latest_event_is_that_of_the_server(store):
    assert store.inbox.last_event_ms([0, 1]) == [0, 0]
    store.client.xadd(store.keys.events(1), {"e": "x"}, id="1700000000123-0")
    store.client.xadd(store.keys.events(1), {"e": "x"}, id="1700000000123-7")
    assert store.inbox.last_event_ms([0, 1]) == [0, 1700000000123]


def test_unfinished_executions_are_counted_by_status(store):
    store.client.zadd(store.keys.by(0, "waiting"), {"a": 1, "b": 2})
    store.client.zadd(store.keys.by(2, "waiting"), {"c": 1})
    store.client.zadd(store.keys.by(2, "completed"), {"d": 1})
    store.client.zadd(store.keys.by(1, "queued"), {"e": 1})
    sizes = store.inbox.count(dict.fromkeys((0, 2), START)).sizes
    assert (sizes["waiting"], sizes["queued"]) == (3, 0)
    assert "completed" not in sizes
    assert set(store.inbox.count({}).sizes.values()) == {0}


def test_lengths_are_given_by_partition(store):
    for partition in (1, 1, 3):
        store.inbox.send(partition, {"n": 1})
    assert store.inbox.lengths() == [0, 2, 0, 1]


def test_applied_commands_leave_nothing_behind_that_does_not_expire(store):
    store.execute(store.create())
    partition = store.keys.partition_of("e1")
    doorbell = store.inbox.scan(partition, START, 1)[0].entry_id
    store.execute(store.commit(applied=[Applied(doorbell)]))
    lasting = {name for name, (_, expires) in store.dump().items() if not expires}
    for n in range(200):
        applied = [store.command(command_id=f"c{n}")]
        store.execute(store.commit(expected_rev=2 + n, commit_id=f"n{n}", status_from="running", applied=applied))
    assert store.row()["rev"] == b"202"
    assert store.inbox.lengths() == [0, 0, 0, 0]
    assert {name for name, (_, expires) in store.dump().items() if not expires} == lasting
