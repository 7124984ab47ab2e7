"""How often something may be restarted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.actors.kit.supervision import RestartIntensity


def test_the_third_failure_inside_a_minute_is_refused() -> None:
    intensity = RestartIntensity()
    assert [intensity.record("a", at) for at in (0.0, 10.0, 20.0)] == [True, True, False]


def test_as_many_restarts_as_the_limit_says_are_allowed() -> None:
    intensity = RestartIntensity(max_restarts=3, window_seconds=60.0)
    assert [intensity.record("a", float(at)) for at in range(5)] == [True, True, True, False, False]


def test_failures_older_than_the_window_are_forgotten() -> None:
    intensity = RestartIntensity(max_restarts=1, window_seconds=60.0)
    assert [intensity.record("a", at) for at in (0.0, 60.0, 119.9, 180.0)] == [True, True, False, True]


def test_each_key_has_its_own_limit() -> None:
    intensity = RestartIntensity(max_restarts=1)
    assert intensity.record("a", 0.0)
    assert intensity.record("b", 0.0)
    assert not intensity.record("a", 1.0)


def test_none_may_be_allowed() -> None:
    assert not RestartIntensity(max_restarts=0).record("a", 0.0)


def test_keys_that_no_longer_fail_leave_memory() -> None:
    intensity = RestartIntensity(window_seconds=60.0)
    for number in range(1000):
        intensity.record(f"execution {number}", float(number))
    assert len(intensity) <= 61
    intensity.record("last", 10_000.0)
    assert len(intensity) == 1


def test_a_key_that_keeps_failing_does_not_keep_the_others_in_memory() -> None:
    intensity = RestartIntensity(window_seconds=60.0)
    for number in range(1000):
        intensity.record("always", float(number))
        intensity.record(f"execution {number}", float(number))
    assert len(intensity) <= 62


def test_a_failure_just_as_old_as_the_window_does_not_count() -> None:
    intensity = RestartIntensity(max_restarts=2, window_seconds=60.0)
    assert [intensity.record("a", at) for at in (0.0, 30.0, 60.0, 89.0)] == [True, True, True, False]


def test_a_key_that_fails_again_is_not_forgotten_early() -> None:
    intensity = RestartIntensity(max_restarts=2, window_seconds=60.0)
    assert intensity.record("a", 0.0)
    assert intensity.record("b", 30.0)
    assert intensity.record("a", 50.0)
    assert intensity.record("c", 70.0)
    assert intensity.record("a", 71.0), "the one at 0 s is over a minute old"
    assert not intensity.record("a", 72.0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60),
    st.integers(0, 4),
    st.floats(0.5, 100),
)
def test_it_agrees_with_counting_all_failures_ever(gaps: Any, most: int, window: float) -> None:
    intensity = RestartIntensity(most, window)
    seen: list[tuple[str, float]] = []
    now = 0.0
    for key, gap in gaps:
        now += gap
        seen.append((key, now))
        recent = sum(1 for other, at in seen if other == key and at > now - window)
        assert intensity.record(key, now) is (recent <= most)


@pytest.mark.parametrize(("most", "window"), [(-1, 60.0), (3, 0.0), (3, float("nan"))])
def test_a_limit_that_makes_no_sense_is_refused(most: int, window: float) -> None:
    with pytest.raises(ValueError, match="expected max_restarts >= 0 and window_seconds > 0"):
        RestartIntensity(most, window)
