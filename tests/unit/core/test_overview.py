"""What one reading says, beside the one before; and what of it a person has to look at."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.core.attention import notices
from stepwell.core.fullness import Memory
from stepwell.core.overview import BackingOff, Inbox, Overview, Rate, Seen, overview_of
from stepwell.core.ownership import LEAVING, Member
from stepwell.core.vitals import Rates, RunningStep, StepTimes, Vitals, Work

NOW = 1_795_996_997_000
STATUSES = ("queued", "running", "waiting", "paused", "parked", "completed", "error", "cancelled")


def seen(**changes: Any) -> Seen:
    given: dict[str, Any] = {"namespace": "t", "at": NOW, "partitions": 4, "durability": "relaxed", "counts": {}}
    given |= changes
    given["counts"] = dict.fromkeys(STATUSES, 0) | given["counts"]
    return Seen(**given)


def of(before: Overview | None = None, most: int = 10, **changes: Any) -> Overview:
    return overview_of(seen(**changes), before, most)


def member(ago: int = 500, **changes: Any) -> Member:
    return Member(NOW - ago, "inc", "rack-7/4026,boot,4711,99", **changes)


def vitals(ago: int = 500, **changes: Any) -> Vitals:
    return Vitals(**{"at": NOW - ago, "started_at": NOW - 3_600_000, **changes})


def working(**changes: Any) -> dict[str, Any]:
    """One shard that holds everything."""
    return {"members": {"w/0": member()}, "leases": dict.fromkeys(range(4), "w/0"), **changes}


def said(**changes: Any) -> list[tuple[str, str]]:
    return [(each.level, each.text) for each in notices(of(**changes))]


def test_the_first_reading_knows_no_change() -> None:
    assert of(counts={"running": 3}).executions["running"].per_second is None


def test_a_change_is_told_by_the_servers_clock() -> None:
    before = of(at=NOW - 2_000, counts={"running": 3, "completed": 10})
    now = of(before, counts={"running": 2, "completed": 17}).executions
    assert (now["running"].count, now["running"].per_second) == (2, -0.5)
    assert (now["completed"].per_second, now["error"].per_second) == (3.5, 0.0)


def test_a_clock_that_went_back_tells_no_change() -> None:
    assert of(of(at=NOW + 1), counts={"running": 2}).executions["running"].per_second is None


def test_rates_are_those_of_all_living_shards() -> None:
    told = {f"w/{n}": vitals(work=Work(rates=Rates(10.0, 1.0, 0.5))) for n in range(2)}
    told["old/0"] = vitals(ago=11_000, work=Work(rates=Rates(99.0)))
    assert of(vitals=told, members=dict.fromkeys([*told, "mute/0"], member())).rate == Rate(20.0, 2.0, 1.0)
    assert of(members={"mute/0": member()}).rate is None


def test_what_runs_longest_comes_first_of_all_shards() -> None:
    told = {
        "w/0": vitals(longest=(RunningStep("e1", "f", "a", 1, NOW - 5_000), RunningStep("e2", "f", "a", 1, NOW - 1))),
        "w/1": vitals(longest=(RunningStep("e3", "f", "b", 2, NOW - 9_000),)),
    }
    found = of(vitals=told, members=dict.fromkeys(told, member()), most=2).longest
    assert [(each.execution, each.shard) for each in found] == [("e3", "w/1"), ("e1", "w/0")]


def test_slow_steps_of_several_shards_are_one() -> None:
    told = {
        "w/0": vitals(work=Work(slowest=(StepTimes("f", "pay", 90, 9.0, ((0.1, 90),)),))),
        "w/1": vitals(work=Work(slowest=(StepTimes("f", "pay", 10, 6.0, ((0.1, 4), (1.0, 6))),))),
    }
    (pay,) = of(vitals=told, members=dict.fromkeys(told, member())).slowest
    assert (pay.completed, pay.mean_ms, pay.p95_ms) == (100, 150.0, 1000.0)


def test_what_is_beyond_all_buckets_has_no_bound() -> None:
    times = StepTimes("f", "night", 1, 9_999.0, ((None, 1),))
    told = {"w/0": vitals(work=Work(slowest=(times,)))}
    assert of(vitals=told, members={"w/0": member()}).slowest[0].p95_ms is None


def test_shards_that_need_a_look_come_first() -> None:
    members = {
        "a/0": member(),
        "b/0": member(state=LEAVING),
        "c/0": member(ago=12_000),
        "long-gone/0": member(ago=700_000),
    }
    shards = of(members=members, beats={"d/0": NOW - 100}, leases={0: "a/0", 1: "c/0", 2: "a/0"}).shards
    assert [(each.name, each.state, each.partitions) for each in shards] == [
        ("c/0", "silent", 1),
        ("b/0", "leaving", 0),
        ("a/0", "active", 2),
        ("d/0", "active", 0),
    ]
    assert (shards[2].host, shards[2].pid, shards[2].running) == ("rack-7", 4711, None)


def test_a_shard_whose_leases_are_not_renewed_is_silent_whatever_else_it_says() -> None:
    (shard,) = of(members={"w/0": member(ago=12_000)}, vitals={"w/0": vitals(ago=100)}).shards
    assert (shard.state, shard.silent_ms) == ("silent", 12_000)


def test_what_a_silent_shard_said_last_is_not_about_now() -> None:
    (shard,) = of(members={"w/0": member(ago=20_000)}, vitals={"w/0": vitals(ago=20_000, running=7)}).shards
    assert (shard.state, shard.silent_ms, shard.running) == ("silent", 20_000, None)


def test_what_a_living_shard_said_long_ago_is_not_about_now() -> None:
    (shard,) = of(members={"w/0": member()}, vitals={"w/0": vitals(ago=11_000, running=7, life=3)}).shards
    assert (shard.state, shard.running, shard.life) == ("active", None, 3)


def test_lists_are_cut_and_their_totals_are_whole() -> None:
    waiting = [BackingOff(f"e{n}", "f", NOW + n) for n in range(5)]
    found = of(next=waiting, by_flow={"f": (900, NOW), "g": (1_000, NOW + 5)}, most=2).backoffs
    assert (found.executions, len(found.next)) == (1_900, 2)
    assert [each.flow for each in found.by_flow] == ["g", "f"]


def test_the_guarantee_of_the_one_who_can_t_keep_it_is_told() -> None:
    told = {"w/0": vitals(guarantee={"kept": "yes"}), "w/1": vitals(guarantee={"kept": "no"})}
    assert of(vitals=told, members=dict.fromkeys(told, member())).guarantee == {"kept": "no"}


def test_where_all_is_well_nothing_is_said() -> None:
    assert said(**working(counts={"running": 3, "error": 7})) == []
    assert said() == []


def test_without_a_worker_it_is_said_what_waits() -> None:
    assert said(counts={"queued": 2, "completed": 9}) == [
        ("bad", "no worker is running: start one with `stepwell run FILE` (2 executions)")
    ]


def test_where_all_shards_are_silent_it_is_not_said_that_none_runs() -> None:
    """A full server takes no sign of life of shards that live."""
    first = said(counts={"running": 26}, members={"w/0": member(ago=11_000), "w/1": member(ago=11_000)})[0]
    assert first == (
        "bad",
        "no worker runs (`stepwell run FILE`), or Redis takes no writes: `stepwell doctor` (26 executions)",
    )


def test_a_server_that_is_full_is_told_before_all_that_follows_from_it() -> None:
    full = Memory(used=2**23 - 1024, limit=2**23)
    assert said(**working(counts={"running": 3}, memory=full)) == [
        ("bad", "Redis is full (8.0 of 8.0 MiB): it refuses writes, all waits; raise its maxmemory")
    ]
    found = said(counts={"running": 26}, members={"w/0": member(ago=11_000)}, memory=full)
    assert found[0][1].startswith("Redis is full")
    assert said(**working(memory=Memory(used=95 * 2**20, limit=100 * 2**20))) == [
        ("warning", "Redis is nearly full (95.0 of 100.0 MiB): raise its maxmemory")
    ]
    assert said(**working(memory=Memory(used=89 * 2**20, limit=100 * 2**20))) == []


def test_many_silent_shards_are_one_line() -> None:
    members = {f"w{n}/0": member(ago=14_000 + n * 1000) for n in range(30)}
    found = said(**working(members={"w/0": member(), **members}))
    silent = [text for _, text in found if "silent" in text]
    assert silent == ["30 shards are silent, the latest for 14 s: w0/0, w1/0 and 28 more"]


def test_the_worst_is_said_first() -> None:
    again = vitals(started_at=NOW - 7_000, life=3, inbox_lag=14.2)
    found = said(
        **working(
            members={"w/0": member(), "w/1": member(ago=14_000)},
            leases={0: "w/0", 1: "w/0", 2: "w/0"},
            vitals={"w/0": again},
            counts={"parked": 1},
            inbox=Inbox(230, NOW - 14_000, 7),
            next=[BackingOff("e1", "f", NOW - 9_000)],
            by_flow={"f": (1, NOW - 9_000)},
            dead_letters=12,
            unread="WRONGTYPE of a key",
        )
    )
    assert found == [
        ("bad", "not all can be read: WRONGTYPE of a key"),
        ("bad", "shard w/1 is silent for 14 s"),
        ("bad", "1 of 4 partitions have no owner"),
        ("warning", "shard w/0 has not applied an entry of its inboxes for 14 s: its log says why"),
        ("warning", "retries are overdue by up to 9 s: first that of e1"),
        ("warning", "shard w/0 was started again 7 s ago (process 3)"),
        ("warning", "1 execution needs a person: stepwell list --status parked"),
        ("warning", "12 dead letters: stepwell dead list"),
    ]


def test_an_old_entry_that_waits_for_room_is_nothing_out_of_the_ordinary() -> None:
    assert said(**working(vitals={"w/0": vitals(inbox_lag=9)}, inbox=Inbox(230, NOW - 600_000, 7))) == []


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        ((1, 0), "1 step that may have killed a shard waits for a process of its own: each shard runs 4 at once"),
        ((2, 7), "9 steps that may have killed a shard wait for a process of their own: each shard runs 4 at once"),
    ],
)
def test_what_waits_to_be_set_apart_is_said_with_what_it_waits_for(waiting: tuple[int, int], text: str) -> None:
    told = {f"w/{n}": vitals(waits_apart=count) for n, count in enumerate(waiting)}
    seen = working(vitals=told, members=dict.fromkeys(told, member()))
    assert said(**seen) == [("warning", text)]
    assert [each.waits_apart for each in of(**seen).shards] == list(waiting)


def test_a_promise_that_can_t_be_kept_is_said() -> None:
    told = {"w/0": vitals(guarantee={"kept": "no"})}
    assert said(**working(vitals=told)) == [("bad", "a promise can't be kept; `stepwell doctor` says which")]
