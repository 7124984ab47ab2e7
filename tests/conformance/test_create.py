"""Starting an execution: one row for an id, whoever comes first."""

from __future__ import annotations

import threading

from stepwell.store.catalog import Catalog
from stepwell.store.requests import Broken, Created, Exists


def test_a_new_id_gets_a_queued_row_its_indexes_and_a_doorbell(store):
    partition = store.keys.partition_of("e1")
    assert store.execute(store.create(due_ms=5)) == Created()
    at = str(store.now).encode()
    assert store.row() == {
        "flow": b"checkout",
        "input_hash": b"h1",
        "status": b"queued",
        "rev": b"1",
        "created_at": at,
        "updated_at": at,
        "meta": b"{}",
        "input": b'{"n":1}',
    }
    assert store.score(store.keys.by(partition, "queued")) == store.now
    assert store.score(store.keys.live(partition)) == 5
    (entry,) = store.inbox.scan(partition, "0-0", 10)
    assert entry.fields == {"type": b"start", "execution": b"e1", "flow": b"checkout", "at": at, "v": b"1"}


def test_a_taken_id_is_answered_with_what_holds_it_and_nothing_is_written(store):
    store.execute(store.create())
    before = store.dump()
    assert store.execute(store.create(flow="other", input_hash="h2")) == Exists("checkout", "h1", "queued")
    assert store.dump() == before


def test_a_started_execution_shows_its_status_to_a_second_start(store):
    store.execute(store.create())
    store.execute(store.commit())
    assert store.catalog.create(store.create()) == Exists("checkout", "h1", "running")


def test_of_two_clients_at_the_same_moment_one_creates_and_the_other_hears_of_it(store):
    for round_ in range(10):
        together = threading.Barrier(2)
        replies: list[object] = []

        def start(execution_id: str, together: threading.Barrier = together, replies: list[object] = replies) -> None:
            catalog = Catalog(store.connect(), store.keys, store.scripts)
            together.wait()
            replies.append(catalog.create(store.create(execution_id)))

        racers = [threading.Thread(target=start, args=(f"race{round_}",)) for _ in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert sorted(replies, key=repr) == [Created(), Exists("checkout", "h1", "queued")]
    assert sum(store.inbox.lengths()) == 10


def test_a_start_repeated_after_redis_lost_the_creation_makes_the_same_row_again(store):
    store.execute(store.create())
    row = store.row()
    store.client.flushall()
    assert store.execute(store.create()) == Created()
    assert store.row() == row


def test_an_event_is_added_when_given(store):
    store.execute(store.create(event=b'{"e":"created"}'))
    ((_, fields),) = store.client.xrange(store.keys.events(store.keys.partition_of("e1")))
    assert fields == {b"e": b'{"e":"created"}'}


def test_a_key_of_a_foreign_type_in_the_rows_place_is_no_execution_and_is_left_alone(store):
    store.client.set(store.keys.row("e1"), "garbage")
    before = store.dump()
    assert isinstance(store.execute(store.create()), Broken)
    assert store.dump() == before
