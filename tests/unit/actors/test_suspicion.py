"""How an execution was left: by its partition's last owner, and by what was written down at earlier deaths."""

from __future__ import annotations

import pytest

from stepwell.actors.holdings import Holdings
from stepwell.actors.left import LEFT_BOXED, LEFT_CLEAN, LEFT_UNKNOWN, Left
from stepwell.actors.suspicion import Suspicions
from stepwell.core.records import CutShort
from stepwell.store.leases import Grant
from stepwell.store.suspects import Strike, Suspect, Suspects

CUT = CutShort("token", 1, False, "pay")
STRIKE = Strike(1, "killed by SIGSEGV")


def left_by(grant: Grant) -> Left:
    holdings = Holdings(lambda: 0.0)
    holdings.hold(grant, 1.0)
    return Suspicions(holdings).left(0, "a")


def granted(clean: bool, boxed: bool, suspect: Suspect | None) -> Grant:
    suspects = Suspects({"b": Suspect(STRIKE, (CUT,)), **({} if suspect is None else {"a": suspect})}, {})
    return Grant(0, 7, "lease", clean, 0, boxed, suspects)


@pytest.mark.parametrize(
    ("clean", "boxed", "left"), [(True, False, LEFT_CLEAN), (False, True, LEFT_BOXED), (False, False, LEFT_UNKNOWN)]
)
def test_what_nothing_is_held_against_was_left_as_its_owner_went(clean: bool, boxed: bool, left: Left) -> None:
    assert left_by(granted(clean, boxed, None)) == left


@pytest.mark.pain(8)
@pytest.mark.parametrize(("clean", "boxed"), [(True, False), (False, True)])
def test_what_was_written_down_at_a_death_counts_however_the_owners_since_then_went(clean: bool, boxed: bool) -> None:
    assert left_by(granted(clean, boxed, Suspect(None, (CUT,)))) == Left(False, (CUT,), True)


def test_a_strike_alone_interrupts_nothing() -> None:
    assert left_by(granted(True, False, Suspect(STRIKE))) == Left(True, (), True, STRIKE)


def test_where_nobody_read_the_last_box_all_may_have_been_cut() -> None:
    assert left_by(granted(False, False, Suspect(STRIKE, (CUT,)))) == Left(False, None, True, STRIKE)


def test_what_is_lost_again_is_left_alone() -> None:
    assert Suspicions(Holdings(lambda: 0.0)).left(0, "a") == LEFT_CLEAN
