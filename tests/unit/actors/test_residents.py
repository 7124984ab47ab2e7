"""Who should leave memory, and when."""

from __future__ import annotations

import pytest

from stepwell.actors.residents import Residents


def resting(most: int = 3, rest_max: float = 30.0, **since: float) -> Residents:
    residents = Residents(most, rest_max)
    for name, now in since.items():
        residents.rests(name, now)
    return residents


@pytest.mark.pain(38)
def test_those_that_rest_longest_leave_until_only_so_many_are_left() -> None:
    residents = resting(a=1, b=2, c=3, d=4)
    assert residents.too_many(5) == ["a", "b"]


def test_who_rested_once_more_is_not_the_first_to_leave() -> None:
    residents = resting(a=1, b=2, c=3)
    residents.rests("a", 4)
    assert residents.too_many(4) == ["b"]


def test_who_was_told_to_leave_counts_as_gone_until_it_has_something_to_do() -> None:
    residents = resting(a=1, b=2, c=3, d=4)
    assert residents.too_many(4) == ["a"]
    assert residents.too_many(4) == [], "it is on its way"
    residents.gone("a")
    assert residents.too_many(3) == []
    assert residents.too_many(4) == ["b"]


def test_who_works_is_not_asked_to_leave_however_many_there_are() -> None:
    residents = resting(a=1, b=2)
    residents.gone("a")
    assert residents.too_many(100) == ["b"]
    assert residents.too_many(100) == []


def test_a_rest_is_over_after_its_time_and_not_before() -> None:
    residents = resting(a=1, b=2, c=2.5)
    assert residents.too_long(30.9) == []
    assert residents.too_long(32) == ["a", "b"]
    assert residents.too_long(32) == []
    assert len(residents) == 1
    residents.gone("c")
    assert residents.too_long(1000) == []
