"""Leases that are shared: who joins, leaves, dies or can't be seen, and what of ours becomes another one's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from unit.actors.lease_stage import PARTITIONS, Stage, run_until, waits

from stepwell.actors.leases import EAGER_FOR_SECONDS, EAGER_SECONDS, LOOK_SECONDS
from stepwell.actors.messages import CheckRecovered, HandOver, PartitionLost, ServeOn
from stepwell.core.errors import StoreError
from stepwell.core.ownership import Member, owners
from stepwell.store.leases import Grant, Held
from stepwell.store.link import LinkDown

OTHER = "w/0"
SHARES = owners(PARTITIONS, ["me", OTHER])
MINE = [partition for partition in range(PARTITIONS) if SHARES[partition] == "me"]
THEIRS = [partition for partition in range(PARTITIONS) if SHARES[partition] == OTHER]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def waiting(stage: Stage) -> Stage:
    """A stage after its first round, whose rounds wait in virtual time."""
    return waits(stage)


def other(stage: Stage, **changes: object) -> None:
    """Another shard says that it lives."""
    given = {"at": stage.clock.now_ms(), "incarnation": "o", "host": "there,boot,1,1", **changes}
    stage.roster.members[OTHER] = Member(**given)  # type: ignore[arg-type]


def look_in(stage: Stage, seconds: float) -> None:
    """Let that much time pass, then one round or look."""
    stage.clock.advance(seconds)
    stage.leases.run_once()


def handed_over(stage: Stage) -> list[int]:
    return [p for told in stage.told if isinstance(told, HandOver) for p in told.partitions]


def served_on(stage: Stage) -> list[int]:
    return [p for told in stage.told if isinstance(told, ServeOn) for p in told.partitions]


def all_quiet(stage: Stage) -> None:
    """The dispatcher has nothing left of what it was told of last."""
    last = [told for told in stage.told if isinstance(told, HandOver)][-1]
    for partition in last.partitions:
        last.quiet(partition)


def test_both_have_something() -> None:
    assert MINE
    assert THEIRS


@pytest.mark.pain(6)
def test_only_what_should_be_ours_is_taken(stage: Stage) -> None:
    other(stage)
    stage.leases.round()
    assert stage.holdings.partitions() == MINE
    assert stage.roster.members["me"].state == "active"


def test_who_joins_is_seen_at_the_next_look_and_gets_its_share_as_soon_as_that_is_quiet(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    assert handed_over(stage) == THEIRS == stage.lost
    assert stage.store.released == []
    all_quiet(stage)
    stage.leases.run_once()
    assert stage.store.released == THEIRS
    assert stage.holdings.partitions() == MINE
    assert [told for told in stage.told if isinstance(told, PartitionLost)] == [PartitionLost(p) for p in THEIRS]


def test_what_is_not_quiet_in_time_is_served_on_and_tried_again_after_growing_pauses(waiting: Stage) -> None:
    began: list[float] = []
    seen = 0
    for _ in range(400):
        other(waiting)
        waiting.leases.run_once()
        if len(handed_over(waiting)) > seen:
            began.append(waiting.clock.monotonic())
            seen = len(handed_over(waiting))
    assert waiting.store.released == []
    assert served_on(waiting)[: len(THEIRS)] == THEIRS
    assert waiting.gained[PARTITIONS : PARTITIONS + len(THEIRS)] == THEIRS, "its inbox is read again"
    pauses = [later - earlier - 2.0 for earlier, later in itertools.pairwise(began)]
    assert pauses[:4] == pytest.approx([10.0, 20.0, 40.0, 60.0], abs=LOOK_SECONDS)


def test_what_becomes_quiet_too_late_is_not_released(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    look_in(stage, 2.0)
    assert served_on(stage) == THEIRS
    all_quiet(stage)
    stage.leases.run_once()
    assert stage.store.released == []
    assert stage.holdings.partitions() == list(range(PARTITIONS))


def test_an_heir_that_dies_meanwhile_gets_nothing(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    del stage.roster.members[OTHER]
    look_in(stage, LOOK_SECONDS)
    assert served_on(stage) == THEIRS
    assert stage.store.released == []


def test_a_release_whose_reply_is_lost_is_sent_again_and_nothing_is_taken_before(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    all_quiet(stage)
    release = stage.store.release

    def breaks(grants: Sequence[Grant]) -> list[bool]:
        release(grants)
        raise LinkDown("the reply was lost")

    stage.store.release = breaks  # type: ignore[method-assign]
    stage.leases.run_once()
    assert stage.holdings.partitions() == MINE, "nothing of it is done any more, whatever Redis knows"
    stage.store.release = release  # type: ignore[method-assign]
    stage.store.released.clear()
    look_in(stage, LOOK_SECONDS)
    assert stage.store.released == THEIRS


def test_a_master_that_is_away_when_a_partition_of_it_is_handed_over_holds_up_nothing_else(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    all_quiet(stage)
    release = stage.store.release

    def is_away(grants: Sequence[Grant]) -> list[bool]:
        raise LinkDown("the master of these slots is away")

    stage.store.release = is_away  # type: ignore[method-assign]
    before = stage.clock.now_ms()
    for _ in range(60):
        look_in(stage, LOOK_SECONDS)
    assert stage.roster.members["me"].at >= before + 24_000, "it goes on to say that it lives"
    assert all(stage.acts_until(partition) > stage.clock.monotonic() for partition in MINE)
    del stage.roster.members[OTHER]
    look_in(stage, LOOK_SECONDS)
    assert stage.holdings.partitions() == MINE, "the grant that is to be given back must not be taken for a new one"
    stage.store.release = release  # type: ignore[method-assign]
    look_in(stage, LOOK_SECONDS)
    assert stage.store.released == THEIRS
    assert stage.holdings.partitions() == sorted([*MINE, *THEIRS])


def test_a_member_that_is_taken_off_is_inherited_at_the_next_look(stage: Stage) -> None:
    other(stage)
    stage.store.held = dict.fromkeys(THEIRS, "other|1|o|there,boot,1,1")
    stage.leases.round()
    assert stage.holdings.partitions() == MINE
    stage.roster.members.pop(OTHER)
    stage.store.held = {p: v for p, v in stage.store.held.items() if p in MINE}
    look_in(stage, LOOK_SECONDS)
    assert stage.holdings.partitions() == list(range(PARTITIONS))


def test_the_looks_come_faster_while_something_new_is_waited_for(waiting: Stage) -> None:
    waiting.store.held = {p: v for p, v in waiting.store.held.items() if p in MINE}
    for partition in THEIRS:
        waiting.holdings.drop(partition)
        waiting.store.held[partition] = "other|1|o|there,boot,1,1"
    other(waiting)
    run_until(waiting, LOOK_SECONDS, lambda: other(waiting))
    other(waiting, state="leaving")
    waiting.leases.hurry()
    waiting.leases.run_once()
    looks = waiting.roster.looks
    run_until(waiting, EAGER_FOR_SECONDS, lambda: other(waiting, state="leaving"))
    assert waiting.roster.looks - looks == pytest.approx(EAGER_FOR_SECONDS / EAGER_SECONDS, abs=4)
    looks = waiting.roster.looks
    run_until(waiting, 5.0, lambda: other(waiting, state="leaving"))
    assert waiting.roster.looks - looks <= 5.0 / LOOK_SECONDS + 3


def test_membership_that_can_t_be_read_stays_what_it_was(stage: Stage) -> None:
    other(stage)
    stage.leases.round()
    stage.roster.unreadable = True
    for _ in range(40):
        look_in(stage, LOOK_SECONDS)
    assert stage.troubles == 0
    assert stage.holdings.partitions() == MINE
    assert all(stage.holdings.may_act(p) for p in MINE), "renewals go on"


def test_who_can_t_take_what_is_its_own_does_not_say_that_it_lives(stage: Stage) -> None:
    def refuses(*_: object) -> list[Grant | Held]:
        raise StoreError("no rights")

    stage.store.acquire = refuses  # type: ignore[method-assign]
    stage.leases.round()
    assert stage.troubles == 1
    assert stage.roster.members == {}, "others must not count on it"


@pytest.mark.pain(48)
def test_a_dead_process_of_this_host_is_no_member_unless_somebody_looks_into_its_death(stage: Stage) -> None:
    lease = f"{OTHER}|1|o|here-dead,boot,1,1"
    stage.store.held = dict.fromkeys(THEIRS, lease)
    other(stage, host="here-dead,boot,1,1", parent="here,boot,2,1")
    stage.leases.round()
    assert stage.holdings.partitions() == MINE, "its parent lives, and reads its black box first"
    other(stage, host="here-dead,boot,1,1", parent="here-dead,boot,2,1")
    look_in(stage, LOOK_SECONDS)
    assert stage.holdings.partitions() == list(range(PARTITIONS))


def test_who_leaves_says_so_before_it_hands_anything_over(stage: Stage) -> None:
    stage.leases.round()
    other(stage)
    look_in(stage, LOOK_SECONDS)
    all_quiet(stage)
    stage.leases.run_once()
    stage.told.clear()
    stage.leases.leave(hand_over=True)
    stage.leases.run_once()
    assert stage.roster.members["me"].state == "leaving"
    assert handed_over(stage) == []
    assert stage.leases.next_at == pytest.approx(stage.clock.monotonic() + LOOK_SECONDS)
    look_in(stage, LOOK_SECONDS)
    assert handed_over(stage) == MINE
    for _ in range(30):  # no limit but the grace, which is the caller's
        look_in(stage, LOOK_SECONDS)
    assert served_on(stage) == []
    all_quiet(stage)
    stage.leases.run_once()
    assert stage.holdings.partitions() == []
    stage.leases.release()
    assert stage.roster.left == ["me"]


def test_what_an_earlier_owner_may_have_left_interrupted_is_asked_for_and_not_handed_over_before(stage: Stage) -> None:
    acquire = stage.store.acquire

    def dirty(*given: object) -> list[Grant | Held]:
        answers = acquire(*given)  # type: ignore[arg-type]
        return [Grant(a.partition, a.epoch, a.value, False, 0) if isinstance(a, Grant) else a for a in answers]

    stage.store.acquire = dirty  # type: ignore[method-assign]
    stage.leases.round()
    assert stage.told[-1] == CheckRecovered([0, 1, 2])
    other(stage)
    look_in(stage, LOOK_SECONDS)
    assert handed_over(stage) == []
    for partition in range(PARTITIONS):
        stage.holdings.recovered(partition)
    look_in(stage, LOOK_SECONDS)
    assert handed_over(stage) == THEIRS


def test_what_is_not_recovered_is_not_given_back_as_if_nothing_was_interrupted(stage: Stage) -> None:
    stage.leases.round()
    grant = stage.holdings.grant(1)
    assert grant is not None
    stage.holdings.hold(Grant(1, grant.epoch, grant.value, False, 0), stage.acts_until(1))
    stage.leases.release()
    assert stage.store.released == [0, 2]
    assert stage.store.held == {}, "but it is free"


def test_where_bodies_are_cut_off_the_lease_stays_and_our_entry_says_that_we_leave(stage: Stage) -> None:
    stage.leases.round()
    stage.leases.release({1})
    assert stage.store.released == [0, 2]
    assert list(stage.store.held) == [1]
    assert stage.holdings.partitions() == [], "but we act on it no more"
    assert stage.roster.members["me"].state == "leaving", "others take the rest, and leave that to our parent"
    assert stage.roster.left == []
