"""The receiver's bad habits: enough of each kind, the same for a seed, and never more than a budget bears."""

from __future__ import annotations

import pytest

from stepwell.demo.flows import STEPS
from stepwell.demo.habits import Habit, Habits
from stepwell.demo.verdict import EXHAUSTED_MIN, RESETS_MIN

ORDERS = [f"order-{number:02d}" for number in range(1, 51)]
NAMES = [step.name for step in STEPS]
BUDGET = min(step.retry.max_attempts for step in STEPS)


@pytest.fixture(params=range(5))
def habits(request: pytest.FixtureRequest) -> Habits:
    return Habits(request.param, ORDERS, NAMES)


def test_a_seed_gives_the_same_habits_again() -> None:
    one, same, other = (Habits(seed, ORDERS, NAMES) for seed in (1, 1, 2))
    assert (one.broken, one.courses) == (same.broken, same.courses)
    assert one.courses != other.courses


def test_more_resets_and_broken_steps_than_must_be(habits: Habits) -> None:
    assert sum(Habit.RESET in course for course in habits.courses.values()) >= 2 * RESETS_MIN
    assert len({order for order, _ in habits.broken}) > EXHAUSTED_MIN


def test_every_step_breaks_in_both_ways_somewhere(habits: Habits) -> None:
    assert {step for _, step in habits.broken} == set(NAMES)
    assert set(habits.broken.values()) == {Habit.UNAVAILABLE, Habit.RESET}


def test_no_other_step_uses_up_its_budget(habits: Habits) -> None:
    assert max(len(course) for course in habits.courses.values()) < BUDGET
    assert not habits.broken.keys() & habits.courses.keys()


def test_a_course_ends_in_good_answers() -> None:
    habits = Habits(1, ORDERS, NAMES)
    pair = next(pair for pair, course in habits.courses.items() if course == (Habit.RESET, Habit.RESET))
    assert [habits.habit(pair, earlier, repaired=False) for earlier in range(4)] == [
        Habit.RESET,
        Habit.RESET,
        Habit.GOOD,
        Habit.GOOD,
    ]


def test_a_broken_step_fails_until_it_is_repaired() -> None:
    habits = Habits(1, ORDERS, NAMES)
    pair, habit = next(iter(habits.broken.items()))
    assert habits.habit(pair, 99, repaired=False) is habit
    assert habits.habit(pair, 99, repaired=True) is Habit.GOOD
