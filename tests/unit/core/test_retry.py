"""The retry policy: its delays, its judgement of errors, what it refuses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import FatalError, Retry, RetryAfter, StepFailed, StepTimeout
from stepwell.core.errors import DefinitionError, PayloadError
from stepwell.core.retry import MAX_ATTEMPTS_LIMIT, Verdict, classify
from stepwell.core.token import step_token, token_seed

TOKENS = st.text("0123456789abcdef", min_size=32, max_size=32)
SECONDS = st.floats(0, 3.2e9)


def token(execution: str, path: str = "charge") -> str:
    return step_token(token_seed(execution, 0, bytes(32)), path)


@st.composite
def policies(draw: st.DrawFn) -> Retry:
    jitter = draw(st.floats(0, 10))
    factor = draw(st.one_of(st.just(1.0), st.floats(1 + jitter, 1e6), st.integers(12, 100)))
    return Retry(
        max_attempts=draw(st.integers(1, MAX_ATTEMPTS_LIMIT)),
        base=draw(SECONDS),
        factor=factor if factor == 1 or factor >= 1 + jitter else 1,
        cap=draw(SECONDS),
        jitter=jitter,
        retry_after_max=draw(SECONDS),
    )


@given(policies(), TOKENS, st.integers(1, 10_000))
def test_each_delay_lies_between_its_floor_and_the_jittered_cap(policy: Retry, token: str, attempt: int) -> None:
    delay = policy.delay(token, attempt)
    assert policy.floor(attempt) <= delay <= policy.cap * (1 + policy.jitter)
    assert policy.bounds(attempt)[0] <= delay <= policy.bounds(attempt)[1]
    assert math.ceil(delay * 1000) < 2**53


@given(policies(), st.integers(1, 9_999))
def test_the_floor_never_shrinks_and_never_exceeds_the_cap(policy: Retry, attempt: int) -> None:
    assert policy.floor(attempt) <= policy.floor(attempt + 1) <= policy.cap
    assert policy.floor(1) == min(policy.base, policy.cap)


@given(policies(), TOKENS)
def test_delays_grow_until_the_cap(policy: Retry, token: str) -> None:
    if policy.factor == 1:
        return
    for attempt in range(1, 40):
        if policy.floor(attempt + 1) < policy.cap:
            assert policy.delay(token, attempt) <= policy.delay(token, attempt + 1) * (1 + 1e-12)


@pytest.mark.parametrize("attempt", [1, 2, 1_000, 1_025, 10_000, MAX_ATTEMPTS_LIMIT])
def test_no_delay_stays_no_delay_at_any_attempt(attempt: int) -> None:
    assert Retry(base=0).delay(token("a"), attempt) == 0


@pytest.mark.pain(3)
@pytest.mark.parametrize("attempt", [8, 1_000, 1_025, 10_000, MAX_ATTEMPTS_LIMIT])
def test_the_delay_after_a_late_attempt_is_the_cap(attempt: int) -> None:
    assert Retry(jitter=0).delay(token("a"), attempt) == 60
    assert 60 <= Retry().delay(token("a"), attempt) < 72
    assert Retry(factor=1e6, cap=3.2e9, jitter=0).delay(token("a"), attempt) == 3.2e9


def test_the_default_floors_are_one_two_four_up_to_sixty_seconds() -> None:
    assert [Retry().floor(k) for k in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_thousand_flows_that_fail_together_come_back_apart() -> None:
    policy = Retry()
    for attempt in (1, 2, 5):
        delays = [policy.delay(token(f"order-{n}"), attempt) for n in range(1000)]
        floor = policy.floor(attempt)
        assert min(delays) >= floor
        assert max(delays) - min(delays) >= 0.15 * floor
        halves = sum(delay < floor * 1.1 for delay in delays)
        assert 400 < halves < 600, "spread evenly, not in a heap"
    for n in range(1000):
        schedule = policy.schedule(token(f"order-{n}"))
        assert all(a < b for a, b in itertools.pairwise(schedule))


def test_the_schedule_is_known_beforehand_and_depends_on_token_and_attempt_only() -> None:
    policy = Retry(max_attempts=4)
    assert policy.schedule(token("a")) == [policy.delay(token("a"), k) for k in (1, 2, 3)]
    assert policy.schedule(token("a")) != policy.schedule(token("b"))
    assert policy.delay(token("a"), 7, failure=1) < 1.2, "a renewed budget begins with short delays again"


@pytest.mark.parametrize(
    ("asked", "delay"),
    [(0.5, 1.0), (30.0, 30.0), (7200.0, 3600.0), (math.inf, 3600.0), (-5.0, 1.0), (math.nan, 1.0)],
)
def test_what_an_error_asks_for_counts_if_it_is_longer_and_within_its_bound(asked: float, delay: float) -> None:
    assert Retry(jitter=0).delay(token("a"), 1, retry_after=asked) == delay


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 2.5},
        {"max_attempts": MAX_ATTEMPTS_LIMIT + 1},
        {"base": -1},
        {"base": "1"},
        {"base": math.nan},
        {"factor": 0.5},
        {"factor": 1.1},
        {"cap": math.inf},
        {"cap": 1e300},
        {"jitter": -0.1},
        {"jitter": 1e9},
        {"retry_after_max": None},
        {"give_up_on": ValueError},
        {"give_up_on": ("ValueError",)},
        {"retry_on": (42,)},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(wrong))):
        Retry(**wrong)


class Declined(Exception):
    pass


class Throttled(RetryAfter):
    pass


NETWORK_ONLY = Retry(retry_on=(OSError,), give_up_on=(PermissionError, Throttled))


@pytest.mark.parametrize(
    ("error", "policy", "verdict"),
    [
        (ValueError("x"), Retry(), Verdict(True)),
        (StepTimeout("slow"), Retry(), Verdict(True)),
        (StepFailed("T", "m", 1), Retry(), Verdict(True)),
        (RetryAfter(7), Retry(), Verdict(True, 7.0)),
        (RetryAfter(7), NETWORK_ONLY, Verdict(True, 7.0)),
        (Throttled(7), NETWORK_ONLY, Verdict(False, reason="give_up_on")),
        (FatalError("x"), Retry(), Verdict(False, reason="fatal")),
        (FatalError("x"), Retry(retry_on=(FatalError,)), Verdict(False, reason="fatal")),
        (PayloadError("x"), Retry(), Verdict(False, reason="payload")),
        (DefinitionError("x"), Retry(), Verdict(False, reason="definition")),
        (OSError("x"), NETWORK_ONLY, Verdict(True)),
        (PermissionError("x"), NETWORK_ONLY, Verdict(False, reason="give_up_on")),
        (Declined("x"), NETWORK_ONLY, Verdict(False, reason="not in retry_on")),
        (SystemExit(1), NETWORK_ONLY, Verdict(True)),
        (SystemExit(1), Retry(give_up_on=(SystemExit,)), Verdict(False, reason="give_up_on")),
        (KeyboardInterrupt(), Retry(), Verdict(True)),
    ],
    ids=repr,
)
def test_an_error_is_judged(error: BaseException, policy: Retry, verdict: Verdict) -> None:
    assert classify(error, policy) == verdict
