"""The reply table of `commit`, and exactly what it writes."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from stepwell.store.requests import DROP, Applied, Broken, Committed, Conflict, Fenced


@pytest.fixture
def part(store):
    """The partition of e1, which exists."""
    store.execute(store.create())
    return store.keys.parts[store.keys.partition_of("e1")]


def test_a_commit_writes_what_changed_and_nothing_else(store, part):
    before = store.row()
    assert store.execute(store.commit()) == Committed(seq=ANY)
    assert store.row() == {
        **before,
        "p:charge": b'{"attempt":1}',
        "rev": b"2",
        "commit": b"c1",
        "status": b"running",
        "updated_at": str(store.now + 1000).encode(),
    }


def test_a_changed_status_moves_between_indexes_and_an_unchanged_one_stays(store, part):
    store.execute(store.commit())
    assert store.score(part.by["queued"]) is None
    assert store.score(part.by["running"]) == store.now
    store.execute(store.commit(expected_rev=2, commit_id="c2", now_ms=store.now + 2000, status_from="running"))
    assert store.score(part.by["running"]) == store.now


def test_the_due_time_is_kept_moved_or_dropped(store, part):
    store.execute(store.commit())
    assert store.score(part.live) == 0
    store.execute(store.commit(expected_rev=2, commit_id="c2", live=str(store.now + 5000)))
    assert store.score(part.live) == store.now + 5000
    store.execute(store.commit(expected_rev=3, commit_id="c3", live="+inf"))
    assert store.score(part.live) == float("inf")
    store.execute(store.commit(expected_rev=4, commit_id="c4", live=DROP))
    assert store.score(part.live) is None


def test_deleted_fields_go_and_a_field_that_is_also_set_stays(store, part):
    store.execute(store.commit(sets=[("a", b"1"), ("b", b"2"), ("c", b"3")]))
    store.execute(store.commit(expected_rev=2, commit_id="c2", dels=["a", "b", "missing"], sets=[("b", b"new")]))
    row = store.row()
    assert "a" not in row
    assert (row["b"], row["c"]) == (b"new", b"3")


def test_a_commit_without_any_field_still_counts(store, part):
    assert store.execute(store.commit(sets=[])) == Committed(seq=ANY)
    assert store.row()["rev"] == b"2"


def test_applied_commands_leave_the_inbox_with_their_outcome(store, part):
    done = store.command()
    silent = store.command(command_id="cmd2")
    doorbell = store.inbox.scan(part.number, "0-0", 1)[0].entry_id
    applied = [Applied(doorbell), done, Applied(silent.entry_id, "cmd2"), Applied("", "cmd3", b"[3]")]
    assert store.execute(store.commit(applied=applied)) == Committed(seq=ANY)
    assert store.inbox.lengths()[part.number] == 0
    assert store.catalog.outcome(part.number, "cmd1").outcome == b'{"ok":true}'
    assert store.catalog.outcome(part.number, "cmd1").at_ms == store.now + 1000
    assert store.catalog.outcome(part.number, "cmd2") is None
    assert store.catalog.outcome(part.number, "cmd3").outcome == b"[3]"
    assert 3_000_000 < store.client.pttl(store.keys.cmd(part.number, "cmd1")) <= 3_600_000


def test_waiting_clients_hear_the_end_and_their_commands_outcome(store, part):
    listener = store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(store.keys.ended("e1"), store.keys.command_done(part.number, "cmd1"))
    for _ in range(2):
        listener.get_message(timeout=60)
    store.execute(store.commit(status_to="completed", live=DROP, applied=[store.command()], ended=True))
    heard = [listener.get_message(timeout=60) for _ in range(2)]
    assert [(message["channel"], message["data"]) for message in heard] == [
        (store.keys.command_done(part.number, "cmd1").encode(), b'{"ok":true}'),
        (store.keys.ended("e1").encode(), b"completed"),
    ]
    listener.close()


def test_an_event_goes_with_its_commit_and_the_counter_grows_with_each(store, part):
    store.execute(store.commit(event=b"[1]"))
    store.execute(store.commit(expected_rev=2, commit_id="c2", status_from="running"))
    assert [fields for _, fields in store.client.xrange(part.events)] == [{b"e": b"[1]"}]
    assert store.client.get(part.seq) == b"2"


@pytest.mark.parametrize("event", [b"", b"[1]"])
def test_the_stream_of_events_is_cut_down_now_and_then(store, part, event):
    with store.client.pipeline(transaction=False) as pipeline:
        for _ in range(11_000):
            pipeline.xadd(part.events, {"e": "[]"})
        pipeline.execute()
    for turn in range(64):
        store.execute(store.commit(expected_rev=1 + turn, commit_id=f"c{turn}", event=event, status_from="running"))
    assert 10_000 <= store.client.xlen(part.events) < 10_300


def test_the_same_commit_again_is_recognised_and_changes_nothing(store, part):
    request = store.commit(applied=[store.command()], event=b"[1]", live="9", dels=["meta"])
    assert store.execute(request) == Committed(seq=ANY)
    before = store.dump()
    assert store.execute(request) == Committed(dup=True, seq=ANY)
    assert store.dump() == before


@pytest.mark.parametrize("held", [None, "", "worker/1|9|inc|host,boot,1,2", "garbage \x00"])
def test_without_the_lease_nothing_is_written(store, part, held):
    if held is None:
        store.client.delete(part.lease)
    else:
        store.client.set(part.lease, held)
    before = store.dump()
    assert store.execute(store.commit(applied=[Applied("5-5", "cmd1", b"1")])) == Fenced(held or "")
    assert store.dump() == before


def test_a_fenced_owner_is_not_told_that_its_last_commit_was_written(store, part):
    store.execute(store.commit())
    store.client.set(part.lease, "another|9|inc|host")
    assert store.execute(store.commit()) == Fenced("another|9|inc|host")


def test_a_row_that_went_back_is_a_conflict_with_the_stored_revision(store, part):
    before = store.dump()
    assert store.execute(store.commit(expected_rev=5, commit_id="c5")) == Conflict(1, "")
    assert store.dump() == before


def test_a_row_that_is_gone_is_a_conflict_with_revision_minus_one(store, part):
    store.client.delete(part.row + "e1")
    before = store.dump()
    assert store.execute(store.commit()) == Conflict(-1, "")
    assert store.dump() == before


def test_a_foreign_commit_is_a_conflict_with_its_id(store, part):
    store.execute(store.commit(commit_id="foreign"))
    before = store.dump()
    assert store.execute(store.commit(commit_id="mine")) == Conflict(2, "foreign")
    assert store.dump() == before


@pytest.mark.parametrize("rev", ["", "two", "1.0", "-3", b"\xff\x00", "1 "])
def test_a_row_with_an_unreadable_revision_counts_as_no_row(store, part, rev):
    store.client.hset(part.row + "e1", "rev", rev)
    assert store.execute(store.commit()) == Conflict(-1, "")


@pytest.mark.parametrize("pairs", [499, 500, 501, 1000, 10_000])
def test_a_commit_of_thousands_of_fields_is_written_whole(store, part, pairs):
    sets = [(f"r:{n}", b"%d" % n) for n in range(pairs)]
    assert store.execute(store.commit(sets=sets)) == Committed(seq=ANY)
    row = store.row()
    assert {name: row[name] for name, _ in sets} == dict(sets)
    assert row["rev"] == b"2"
    gone = store.commit(expected_rev=2, commit_id="c2", sets=[], dels=[name for name, _ in sets])
    assert store.execute(gone) == Committed(seq=ANY)
    assert not any(name.startswith("r:") for name in store.row())


def test_values_may_hold_any_bytes(store, part):
    odd = bytes(range(256)) * 3
    store.execute(store.commit(sets=[("r:ä\n {}", odd), ("empty", b"")]))
    assert store.row()["r:ä\n {}"] == odd
    assert store.row()["empty"] == b""


@pytest.mark.parametrize("entry_id", ["x", "1", "1-", "1-2-3", "-", "+", "1-2 "])
def test_a_malformed_entry_id_is_refused_before_anything_is_written(store, part, entry_id):
    before = store.dump()
    assert isinstance(store.execute(store.commit(applied=[Applied(entry_id)])), Broken)
    assert store.dump() == before


def test_a_due_time_that_is_no_number_is_refused_before_anything_is_written(store, part):
    before = store.dump()
    assert isinstance(store.execute(store.commit(live="soon")), Broken)
    assert store.dump() == before


@pytest.mark.parametrize("name", ["live", "seq", "inbox", "events", "from", "to", "cmd", "row", "lease"])
def test_a_key_of_a_foreign_type_is_reported_and_leaves_the_row_unchanged(store, part, name):
    applied = [store.command()]
    before = store.row()
    named = {"from": part.by["queued"], "to": part.by["running"], "cmd": part.cmd + "cmd1", "row": part.row + "e1"}
    key = named[name] if name in named else getattr(part, name)
    store.client.delete(key)
    store.client.sadd(key, "garbage")
    assert isinstance(store.execute(store.commit(applied=applied, event=b"1", live="1")), Broken)
    if name != "row":
        assert store.row() == before
    if name != "inbox":
        assert applied[0].entry_id in [entry.entry_id for entry in store.inbox.scan(part.number, "0-0", 9)]


@pytest.mark.real_server
@pytest.mark.parametrize("live", ["keep", "drop", "1"])
@pytest.mark.parametrize("status", ["queued", "completed"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_full_server_refuses_for_now_and_writes_nothing(store, part, live, status, restored):
    before = store.dump()
    store.client.config_set("maxmemory", "1")
    try:
        if restored:
            reply = store.execute(store.restore(live="1" if live == "keep" else live, status=status))
        else:
            changes = {"live": live, "status_to": status, "dels": ["meta"], "applied": [Applied("1-1")]}
            reply = store.execute(store.commit(**changes))
    finally:
        store.client.config_set("maxmemory", "0")
    assert reply.kind == "OOM"
    assert store.dump() == before


@pytest.mark.one_server
@pytest.mark.real_server
@pytest.mark.parametrize(("stale", "kind"), [("yes", "READONLY"), ("no", "MASTERDOWN")])
def test_a_replica_refuses_for_now_and_the_owner_goes_on_after_the_failover(store, part, stale, kind):
    store.client.config_set("replica-serve-stale-data", stale)
    store.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        reply = store.execute(store.commit())
    finally:
        store.client.execute_command("REPLICAOF", "NO", "ONE")
        store.client.config_set("replica-serve-stale-data", "yes")
    assert reply.kind == kind
    assert store.execute(store.commit()) == Committed(seq=ANY)
