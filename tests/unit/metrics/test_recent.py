"""What the counters say about the last seconds."""

from __future__ import annotations

import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.core import events
from stepwell.core.vitals import STEPS_MAX, Rates
from stepwell.metrics.recent import RATE_SECONDS, SPREADS_SECONDS, WINDOW_SECONDS, Recent, counted_on
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber


class Stage:
    """A subscriber that counts, and what is said of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        sheet = Sheet.in_memory()
        self.tell = MetricsSubscriber(sheet)
        self.recent = Recent(lambda: counted_on(sheet), self.clock.monotonic)

    def completed(self, step: str, *milliseconds: int) -> None:
        for ms in milliseconds:
            self.tell(events.StepCompleted("e1", "checkout", step, step, 1, ms, 0))

    def failed(self, attempt: int = 1) -> None:
        where = ("e1", "checkout", "charge", "charge")
        told = (*where, attempt, 5, "error", "HttpError", "503", 100, 0, "t", "k", False)
        self.tell(events.AttemptFailed(*told, started_at=0))

    def woken(self, why: str) -> None:
        self.tell(events.BackoffLeft("e1", "checkout", "charge", "charge", why, 2, 0))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_where_nothing_has_happened_there_is_nothing(stage: Stage) -> None:
    stage.clock.advance(1)
    work = stage.recent.work()
    assert (work.steps, work.rates, work.slowest) == (0, Rates(), ())


def test_rates_are_those_of_the_last_seconds(stage: Stage) -> None:
    for _ in range(20):
        stage.completed("charge", 3, 3)
        stage.failed(attempt=2)
        stage.woken("timer")
        stage.clock.advance(1)
        work = stage.recent.work()
    assert work.rates == Rates(steps=2.0, failures=1.0, retries=1.0)
    assert (work.steps, work.failures, work.retries) == (40, 20, 20)
    for _ in range(int(RATE_SECONDS) + 1):
        stage.clock.advance(1)
        work = stage.recent.work()
    assert work.rates == Rates()
    assert work.steps == 40


def test_a_retry_counts_from_its_begin_on_and_one_that_nobody_makes_does_not(stage: Stage) -> None:
    for why in ("timer", "manual", "recovery", "signal", "cancel", "gather", "parked", "unloaded"):
        stage.woken(why)
    stage.clock.advance(1)
    assert stage.recent.work().retries == 4


def test_steps_are_in_order_of_their_mean_with_where_their_durations_lie(stage: Stage) -> None:
    stage.completed("quick", 1, 1, 2)
    stage.completed("slow", 90, 110, 4_000)
    stage.clock.advance(SPREADS_SECONDS)
    slow, quick = stage.recent.work().slowest
    assert (slow.flow, slow.step, slow.completed, slow.seconds) == ("checkout", "slow", 3, 4.2)
    assert slow.spread == ((0.1, 1), (0.25, 1), (5, 1))
    assert (quick.step, quick.spread) == ("quick", ((0.001, 2), (0.005, 1)))


def test_what_took_longer_than_all_buckets_has_no_bound(stage: Stage) -> None:
    stage.completed("night", 10_000_000)
    stage.clock.advance(SPREADS_SECONDS)
    assert stage.recent.work().slowest[0].spread == ((None, 1),)


def test_what_is_over_a_minute_ago_is_left_out(stage: Stage) -> None:
    stage.completed("once", 500)
    seen = []
    for _ in range(int(WINDOW_SECONDS) * 2):
        stage.clock.advance(1)
        seen.append([each.step for each in stage.recent.work().slowest])
    assert seen[int(SPREADS_SECONDS)] == ["once"]
    assert seen[int(WINDOW_SECONDS) // 2] == ["once"]
    assert seen[-1] == []
    stage.completed("once", 700)
    stage.clock.advance(SPREADS_SECONDS)
    assert [(each.completed, each.seconds) for each in stage.recent.work().slowest] == [(1, 0.7)]


def test_what_is_kept_and_told_does_not_grow(stage: Stage) -> None:
    for number in range(3 * STEPS_MAX):
        stage.completed(f"s{number}", number)
    for _ in range(1_000):
        stage.clock.advance(1)
        stage.completed("s1", 1)
        work = stage.recent.work()
    assert len(stage.recent._moments) <= 8
    assert len(stage.recent._latest) <= RATE_SECONDS + 2
    assert [each.step for each in work.slowest] == ["s1"]
    for number in range(3 * STEPS_MAX):
        stage.completed(f"s{number}", number)
    stage.clock.advance(SPREADS_SECONDS)
    assert len(stage.recent.work().slowest) == STEPS_MAX
