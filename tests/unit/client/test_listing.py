"""Listings: by status, flow, error, attributes and time, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stepwell.client import listing, searching
from stepwell.core.cursor import decode_cursor
from stepwell.core.errors import InvalidName, UsageError
from stepwell.core.status import STATUSES
from stepwell.store.lists import error_key, lists_of


@pytest.fixture
def told(world):
    """`told(...)` is a page."""

    def ask(status=None, flow=None, limit=100, **more):
        return world.run(world.talk.list(status, flow, limit, **more))

    return ask


@pytest.fixture
def listed(told):
    """`listed(...)` is the ids on a page."""
    return lambda *given, **more: [line["id"] for line in told(*given, **more)]


def make(world, execution_id, at, status="queued", flow="checkout", error="", **attributes):
    """An execution that stands on its lists by that time, as the scripts would have it."""
    world.run(world.talk.start(flow, {"n": 1}, execution_id, True, attributes))
    part = world.keys.parts[world.keys.partition_of(execution_id)]
    world.put(execution_id, status=status, updated_at=at)
    world.redis.zrem(part.by["queued"], execution_id)
    lists = [part.by[status], *lists_of(part, flow, attributes)]
    if error:
        world.fail(execution_id, status, type=error)
        lists.append(error_key(part, error))
    for key in lists:
        world.redis.zadd(key, {execution_id: at})


def pages(told, *given, **more):
    """All pages, put together, each of which must be short."""
    found, cursor = [], None
    while True:
        page = told(*given, cursor=cursor, **more)
        found += [line["id"] for line in page]
        cursor = page.cursor
        if cursor is None:
            return found


def test_listings_are_latest_first_over_all_statuses_and_partitions(world, told, listed):
    for n in range(20):
        make(world, f"e{n}", 1000 + n, ("queued", "running", "completed")[n % 3])
    assert listed() == [f"e{n}" for n in reversed(range(20))]
    assert listed("running", limit=3) == ["e19", "e16", "e13"]
    (line,) = told("completed", limit=1)
    assert line["created_at"] > 1_600_000_000_000
    assert {name: line[name] for name in line if name != "created_at"} == {
        "id": "e17",
        "flow": "checkout",
        "status": "completed",
        "updated_at": 1017,
        "attributes": {},
        "error": None,
    }


@pytest.mark.pain(20)
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_go_on_where_the_one_before_ended(world, told, limit):
    for n in range(30):
        make(world, f"e{n:02}", 1000 + n // 4, STATUSES[n % 7])
    everything = [f"e{n:02}" for n in reversed(range(30))]
    assert pages(told, limit=limit) == everything
    assert pages(told, "error", limit=limit) == [each for each in everything if int(each[1:]) % 7 == 5]


def test_the_last_page_has_no_cursor(world, told):
    for n in range(4):
        make(world, f"e{n}", n)
    assert told(limit=4).cursor is None
    page = told(limit=3)
    assert page.cursor is not None
    rest = told(limit=3, cursor=page.cursor)
    assert (len(rest), rest.cursor) == (1, None)
    assert told("completed").cursor is None


def test_each_filter_finds_by_its_own_list(world, told, listed):
    make(world, "a", 1, "error", error="ValueError", customer="c7", n=1)
    make(world, "b", 2, "error", flow="ship", error="KeyError", customer="c7")
    make(world, "c", 3, "completed", customer="c8", n="1")
    make(world, "d", 4, "parked", error="code diverged")
    assert listed(flow="checkout") == ["d", "c", "a"]
    assert listed(error="ValueError") == ["a"]
    assert listed(error="code diverged") == ["d"]
    assert listed(attributes={"customer": "c7"}) == ["b", "a"]
    assert listed(attributes={"n": 1}) == ["c", "a"], "the number and the text are found alike"
    assert listed(attributes={"customer": "c7", "n": "1"}) == ["a"]
    assert listed("error", "checkout") == ["a"]
    assert listed("error", "ship", error="ValueError") == []
    assert listed("completed", attributes={"customer": "c7"}) == []
    assert [(line["error"], line["attributes"]) for line in told("error")] == [
        ("KeyError", {"customer": "c7"}),
        ("ValueError", {"customer": "c7", "n": 1}),
    ]


def test_times_narrow_any_filter(world, listed):
    now = world.run(world.talk.view.recent()) and world.talk.view.time_ms()
    for n in range(6):
        make(world, f"e{n}", now - 3_600_000 * n - 60_000, "completed", customer="c7")
    assert listed(since="150m") == ["e0", "e1", "e2"]
    assert listed(until=timedelta(hours=3)) == ["e3", "e4", "e5"]
    moment = datetime.fromtimestamp((now - 3_600_000) / 1000, UTC)
    assert listed("completed", "checkout", since=moment.isoformat(), attributes={"customer": "c7"}) == ["e0"]
    assert listed(since="4h ago", until=moment) == ["e1", "e2", "e3"]
    assert listed(since="2m", until="1m30s") == []


def test_the_fewest_are_looked_at(world, told):
    for n in range(40):
        make(world, f"e{n:02}", n, "completed", flow="ship" if n == 3 else "checkout", customer=f"c{n % 4}")
    assert told("completed", "ship").looked == 1
    assert told("completed", "checkout", attributes={"customer": "c1"}).looked == 10


def test_where_few_of_many_fit_a_page_ends_early_and_says_how_to_go_on(world, told, monkeypatch):
    monkeypatch.setattr(searching, "MISSES_MOST", 10)
    monkeypatch.setattr(searching, "LOOK_AT_ONCE", 5)
    for n in range(45):
        make(world, f"e{n:02}", n, "completed" if n % 15 else "error", error="" if n % 15 else "ValueError")
    monkeypatch.setattr(listing.finding, "choices", lambda wanted: ["f"])
    page = told("error", "checkout", 2)
    assert (len(page), page.looked) == (0, 11)
    assert pages(told, "error", "checkout", 2) == ["e30", "e15", "e00"]


def test_a_cursor_keeps_the_time_that_was_said_as_so_long_ago(world, told):
    now = world.run(world.talk.view.recent()) and world.talk.view.time_ms()
    for n in range(10):
        make(world, f"e{n}", now - 60_000 * n)
    page = told(limit=4, since="8m30s")
    world.clock.advance_to(world.clock.monotonic() + 120)
    rest = told(limit=10, since="8m30s", cursor=page.cursor)
    assert [line["id"] for line in (*page, *rest)] == [f"e{n}" for n in range(9)]


def test_what_ends_between_two_pages_is_on_none_of_the_later_ones_and_the_others_are_all_there(world, told):
    for n in range(9):
        make(world, f"e{n}", n, "running")
    page = told(limit=3)
    part = world.keys.parts[world.keys.partition_of("e1")]
    world.redis.zrem(part.by["running"], "e1")
    world.redis.zadd(part.by["completed"], {"e1": 100})
    world.put("e1", status="completed", updated_at=100)
    rest = told(limit=100, cursor=page.cursor)
    assert [line["id"] for line in (*page, *rest)] == ["e8", "e7", "e6", "e5", "e4", "e3", "e2", "e0"]
    assert told(limit=1)[0]["id"] == "e1"


@pytest.mark.parametrize(
    "other", [{"status": "error"}, {"flow": "ship"}, {"error": "E"}, {"attributes": {"a": 1}}, {"status": "queued"}]
)
def test_a_cursor_of_another_listing_is_refused(world, told, other):
    for n in range(3):
        make(world, f"e{n}", n)
    cursor = told(limit=1).cursor
    with pytest.raises(UsageError, match="another listing"):
        told(limit=1, cursor=cursor, **other)
    with pytest.raises(UsageError, match="no cursor"):
        told(limit=1, cursor=cursor[:-4])
    assert decode_cursor(cursor).execution_id == "e2"


@pytest.mark.parametrize(
    "other", [{"since": "2h"}, {"since": None}, {"until": "2"}, {"until": None}, {"since": timedelta(hours=1)}]
)
def test_a_cursor_is_of_the_times_that_were_given(world, told, other):
    now = world.run(world.talk.view.recent()) and world.talk.view.time_ms()
    for n in range(3):
        make(world, f"e{n}", now - 10_000)
    asked = {"since": "1h", "until": "1s"}
    cursor = told(limit=1, **asked).cursor
    assert len(told(limit=5, cursor=cursor, **asked)) == 2
    with pytest.raises(UsageError, match="another listing"):
        told(limit=1, cursor=cursor, **{**asked, **other})


@pytest.mark.parametrize("kind", ["datetime", "timedelta"])
def test_times_that_are_worked_out_from_now_for_each_page_anew_are_the_first_pages(world, told, kind):
    begun = world.run(world.talk.view.recent()) and world.talk.view.time_ms()
    for n in range(10):
        make(world, f"e{n}", begun - 60_000 * n)

    first = datetime.fromtimestamp(begun / 1000, UTC)

    def times():
        """As a handler would say them: other datetimes, or other timedeltas, with each request."""
        now = datetime.fromtimestamp(world.talk.view.time_ms() / 1000, UTC)
        longer, shorter = timedelta(minutes=8.5), timedelta(seconds=30)
        if kind == "datetime":
            return {"since": now - longer, "until": now - shorter}
        return {"since": now - (first - longer), "until": now - (first - shorter)}

    page = told(limit=4, **times())
    world.clock.advance_to(world.clock.monotonic() + 120)
    rest = told(limit=10, cursor=page.cursor, **times())
    assert [line["id"] for line in (*page, *rest)] == [f"e{n}" for n in range(1, 9)]


@pytest.mark.parametrize("name", ["since", "until"])
def test_a_cursor_is_of_another_listing_where_a_time_has_come_or_gone_or_become_a_text(world, told, name):
    now = world.run(world.talk.view.recent()) and world.talk.view.time_ms()
    for n in range(3):
        make(world, f"e{n}", now - 10_000)
    hour = {"since": timedelta(hours=1), "until": timedelta(seconds=1)}[name]
    with_time = told(limit=1, **{name: hour}).cursor
    for other in ({}, {name: "5s"}, {name: "2026-01-01T00:00Z"}):
        with pytest.raises(UsageError, match="another listing"):
            told(limit=1, cursor=with_time, **other)
    with pytest.raises(UsageError, match="another listing"):
        told(limit=1, cursor=told(limit=1).cursor, **{name: hour})


def test_times_between_which_nothing_can_be_are_refused(world, told):
    make(world, "e1", 1)
    with pytest.raises(UsageError, match="nothing can be from 1h on and up to 2h: the first is the later one"):
        told(since="1h", until="2h")
    assert told(since="2026-01-01", until="2026-01-01") == [], "a moment is no mistake"


def test_what_moved_or_vanished_since_the_list_was_read_is_left_out(world, listed):
    for name in ("e1", "e2", "e3"):
        make(world, name, 5, customer="c7")
    world.put("e1", status="running")
    world.redis.delete(world.keys.row("e2"))
    assert listed("queued") == ["e3"]
    assert sorted(listed()) == ["e1", "e3"]
    assert sorted(listed(attributes={"customer": "c7"})) == ["e1", "e3"]


def test_a_row_with_an_unreadable_meta_is_still_listed(world, told):
    world.start("e1")
    world.put("e1", meta=b"garbage", updated_at=b"soon", error=b"[1]")
    (line,) = told()
    assert (line["id"], line["flow"], line["created_at"], line["updated_at"]) == ("e1", "", None, None)
    assert (line["attributes"], line["error"]) == ({}, None)


def test_before_there_is_a_namespace_there_is_nothing(world, told):
    page = told(since="2h ago")
    assert (list(page), page.cursor, page.looked) == ([], None, 0)
    assert not world.redis.keys()


def test_an_unknown_status_is_refused_with_what_it_may_have_meant(listed):
    with pytest.raises(UsageError, match=r"did you mean error\?"):
        listed("errors")
    with pytest.raises(UsageError, match="there are queued, running"):
        listed("zzz")


def test_what_no_execution_can_have_is_refused(told):
    with pytest.raises(UsageError, match="type of error"):
        told(error="")
    with pytest.raises(InvalidName):
        told(flow="a b")
    with pytest.raises(InvalidName):
        told(attributes={"a b": 1})
    with pytest.raises(UsageError, match="2h ago"):
        told(since="soon")


def test_a_list_goes_on_after_a_reply_that_was_lost(world, listed):
    for n in range(5):
        make(world, f"e{n}", n)
    world.lose_reply_of("ZREVRANGEBYSCORE", "HMGET")
    assert listed() == ["e4", "e3", "e2", "e1", "e0"]
