"""Of many lines alike the first few are written, and the rest is counted exactly."""

from __future__ import annotations

import random

import pytest

from stepwell.core.throttle import FIRST, WINDOW_SECONDS, LeftOut, Throttle


@pytest.mark.pain(20)
def test_the_first_lines_of_a_window_are_always_written() -> None:
    throttle: Throttle[str] = Throttle()
    assert [throttle.admits("a", 0.0) for _ in range(FIRST + 2)] == [True] * FIRST + [False] * 2
    assert throttle.admits("b", 0.0)


def test_what_was_left_out_is_told_when_the_window_is_over() -> None:
    throttle: Throttle[str] = Throttle(first=2, seconds=5)
    for at in (0.0, 1.0, 2.0, 3.0):
        throttle.admits("a", at, f"order-{at:g}")
    assert throttle.over(4.9) == []
    assert throttle.over(5.5) == [LeftOut("a", 2, 5.5, "order-3")]
    assert throttle.over(60) == []
    assert throttle.admits("a", 61.0)


def test_a_window_in_which_nothing_was_left_out_is_not_worth_a_line() -> None:
    throttle: Throttle[str] = Throttle(first=2, seconds=5)
    throttle.admits("a", 0.0)
    assert throttle.over(100) == []


def test_flush_tells_of_windows_that_are_not_over() -> None:
    throttle: Throttle[str] = Throttle(first=1, seconds=5)
    for _ in range(4):
        throttle.admits("a", 1.0)
    assert throttle.flush(2.0) == [LeftOut("a", 3, 1.0)]
    assert throttle.flush(2.0) == []


def test_whatever_happens_written_and_left_out_are_all() -> None:
    draw = random.Random(7)
    throttle: Throttle[int] = Throttle()
    now, written, left_out, asked = 0.0, 0, 0, 0
    for _ in range(20_000):
        now += draw.choice((*[0.0, 0.001, 0.01] * 30, WINDOW_SECONDS / 3))
        left_out += sum(each.count for each in throttle.over(now))
        asked += 1
        written += throttle.admits(draw.randrange(20), now)
    left_out += sum(each.count for each in throttle.flush(now))
    assert written + left_out == asked
    assert left_out > 0


def test_some_kinds_have_more_room_than_others() -> None:
    throttle: Throttle[str] = Throttle(first=1)
    assert sum(throttle.admits("ends", 0.0, first=100) for _ in range(250)) == 100
    assert sum(throttle.admits("repeats", 0.0) for _ in range(250)) == 1
    assert [(each.key, each.count) for each in throttle.flush(1.0)] == [("ends", 150), ("repeats", 249)]


def test_memory_does_not_grow_with_what_was_seen_once() -> None:
    throttle: Throttle[int] = Throttle()
    for n in range(10_000):
        throttle.over(float(n))
        throttle.admits(n, float(n))
    assert len(throttle._windows) <= WINDOW_SECONDS + 1
