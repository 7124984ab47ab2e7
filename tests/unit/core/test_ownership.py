"""Who should own what, and who lives: nothing moves that must not, nobody dies of a stepped clock or of blindness."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.ownership import Member, Roster, next_rev, owner_of, owners, worker_of

PARTITIONS = 64
TTL = 10.0
NOW = 1_700_000_000_000

names = st.from_regex(r"[a-z]{1,8}(-[0-9a-f]{8})?/[0-9]{1,2}", fullmatch=True)
crowds = st.sets(names, min_size=1, max_size=16)


@given(crowds, names)
def test_who_joins_takes_from_the_others_and_nothing_else_moves(members: set[str], joiner: str) -> None:
    before, after = owners(PARTITIONS, members), owners(PARTITIONS, members | {joiner})
    for partition in range(PARTITIONS):
        assert after[partition] in (before[partition], joiner)


@given(crowds, st.data())
def test_who_leaves_gives_up_what_it_had_and_nothing_else_moves(members: set[str], data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(sorted(members)))
    before, after = owners(PARTITIONS, members), owners(PARTITIONS, members - {leaver})
    moved = [partition for partition in range(PARTITIONS) if before[partition] != after.get(partition)]
    assert all(before[partition] == leaver for partition in moved)


@given(st.lists(names, min_size=1, max_size=16))
def test_everybody_arrives_at_the_same_answer(members: list[str]) -> None:
    assert owners(PARTITIONS, members) == owners(PARTITIONS, reversed(members))
    assert owners(PARTITIONS, members) == {p: owner_of(p, members, PARTITIONS) for p in range(PARTITIONS)}


def test_without_members_nobody_owns_anything() -> None:
    assert owners(PARTITIONS, []) == {}
    assert owner_of(3, [], PARTITIONS) is None


@pytest.mark.parametrize("shards", range(2, 17))
def test_the_shares_of_64_partitions_are_of_a_size(shards: int) -> None:
    most: list[int] = []
    idle = 0
    for draw in range(50):
        counted = Counter(owners(PARTITIONS, [f"host-{draw}/{index}" for index in range(shards)]).values())
        most.append(max(counted.values()))
        idle += shards - len(counted)
    assert sum(most) / len(most) < 64 / shards * (1.25 if shards == 2 else 2.4)
    assert idle / (50 * shards) < 0.03, "hardly anybody has nothing"


def test_the_shares_are_pinned_as_old_and_new_versions_have_to_agree() -> None:
    assert "".join(owner[-1] for owner in owners(24, ["a/0", "a/1", "b/2"]).values()) == "011021211100122021110102"


def test_a_shard_names_its_worker() -> None:
    assert [worker_of(each) for each in ("w/0", "a.b-c/11", "alone")] == ["w", "a.b-c", "alone"]


# Who lives.


def said(at: int, incarnation: str = "i") -> Member:
    return Member(at, incarnation, "host,boot,1,1")


def living(roster: Roster) -> list[str]:
    return sorted(roster.living())


def test_who_falls_silent_lives_for_a_ttl() -> None:
    roster = Roster(TTL)
    roster.saw({"a": said(NOW - 2_000)}, NOW, 0.0)
    for tenth in range(1, 80):
        roster.saw({"a": said(NOW - 2_000)}, NOW + 100 * tenth, tenth / 10)
        assert living(roster) == ["a"]
    roster.saw({"a": said(NOW - 2_000)}, NOW + 8_100, 8.1)
    assert living(roster) == []
    roster.saw({"a": said(NOW + 8_100)}, NOW + 8_500, 8.5)
    assert living(roster) == ["a"]


def test_who_is_taken_off_is_gone_at_once() -> None:
    roster = Roster(TTL)
    roster.saw({"a": said(NOW), "b": said(NOW)}, NOW, 0.0)
    roster.saw({"b": said(NOW)}, NOW + 500, 0.5)
    assert living(roster) == ["b"]
    assert roster.get("a") is None


def test_an_old_entry_that_is_seen_first_is_nobody() -> None:
    roster = Roster(TTL)
    roster.saw({"old": said(NOW - 10_001), "new": said(NOW - 9_000)}, NOW, 5.0)
    assert living(roster) == ["new"]


@pytest.mark.pain(39)
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_stepped_server_clock_kills_nobody_and_lets_no_dead_one_live_on(step_ms: int) -> None:
    roster = Roster(TTL)
    roster.saw({"beats": said(NOW), "dies": said(NOW)}, NOW, 0.0)
    for half in range(1, 40):
        now = NOW + step_ms + 500 * half
        roster.saw({"beats": said(now - now % 3000), "dies": said(NOW)}, now, half / 2)
        assert living(roster) == (["beats", "dies"] if half < 20 else ["beats"])


def test_time_in_which_nobody_could_look_is_counted_against_nobody() -> None:
    roster = Roster(TTL)
    roster.saw({"a": said(NOW)}, NOW, 0.0)
    roster.saw({"a": said(NOW)}, NOW + 600_000, 600.0)
    assert living(roster) == ["a"], "it was cut off as we were, and has to be heard first"
    for second in range(1, 10):
        roster.saw({"a": said(NOW)}, NOW, 600.0 + second)
    assert living(roster) == []


def test_another_process_of_the_same_name_is_news() -> None:
    roster = Roster(TTL)
    roster.saw({"a": said(NOW)}, NOW, 0.0)
    for second in range(1, 9):
        roster.saw({"a": said(NOW)}, NOW + 1000 * second, float(second))
    roster.saw({"a": said(NOW, "another")}, NOW + 9_000, 9.0)
    roster.saw({"a": said(NOW, "another")}, NOW + 11_000, 11.0)
    assert living(roster) == ["a"]


def test_a_revision_is_the_next_one_and_higher_than_those_of_earlier_grants() -> None:
    assert next_rev(1, 7) == 7000
    assert next_rev(7000, 7) == 7001
    assert next_rev(7001, 8) == 8000
    assert next_rev(9001, 8) == 9002, "never back, also where the server's clock was"
