"""What a shard's counters say about the last seconds: rates, and how long steps took. Made when it is asked for.

Nothing is counted for this: it compares what the metrics show now with what they showed before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from stepwell.core.events import WOKEN_BY
from stepwell.core.vitals import STEPS_MAX, Rates, StepTimes, Work
from stepwell.metrics.instruments import RETRY_WAKEUPS, STEP_ATTEMPTS, STEP_DURATION
from stepwell.metrics.sheet import Sheet

__all__ = ["RATE_SECONDS", "WINDOW_SECONDS", "Counted", "Recent", "counted_on"]

RATE_SECONDS: Final = 5.0
WINDOW_SECONDS: Final = 60.0
SPREADS_SECONDS: Final = 5.0
"""So often the durations of steps are looked at: there may be thousands."""
_KEEP_EVERY_SECONDS: Final = 10.0

Pair = tuple[str, str]
"""A flow and a step."""


Spreads = Mapping[Pair, bytes]
"""Histograms as they stand, as doubles: how many values lie in each bucket (the last one has no bound), and behind them
their sum. Kept as they come from the sheet: there may be thousands, and few of them change."""


def _nothing() -> Spreads:
    return {}


@dataclass(frozen=True, slots=True)
class Counted:
    """What has been counted by now. `durations` reads the durations of steps; `bounds` are those of their buckets, in
    seconds."""

    steps: int = 0
    failures: int = 0
    retries: int = 0
    bounds: Sequence[float] = ()
    durations: Callable[[], Spreads] = _nothing


def counted_on(sheet: Sheet) -> Counted:
    """What a shard has counted by now."""
    done = int(sheet.counted(STEP_ATTEMPTS, "ok"))
    failures = sum(int(sheet.counted(STEP_ATTEMPTS, how)) for how in ("retryable", "terminal", "timeout"))
    retries = sum(int(sheet.counted(RETRY_WAKEUPS, source)) for source in WOKEN_BY)
    return Counted(done, failures, retries, STEP_DURATION.bounds, partial(_durations, sheet))


def _durations(sheet: Sheet) -> Spreads:
    return {(flow, step): numbers for (flow, step), numbers in sheet.spreads_of(STEP_DURATION).items()}


class Recent:
    """Ask it about once a second. `totals` reads the counters; for one thread."""

    def __init__(self, totals: Callable[[], Counted], monotonic: Callable[[], float]) -> None:
        self._totals = totals
        self._monotonic = monotonic
        now, first = monotonic(), totals()
        self._latest: deque[tuple[float, Counted]] = deque([(now, first)])
        self._moments: deque[tuple[float, Spreads]] = deque([(now, first.durations())])  # a little over the window
        self._slowest: tuple[StepTimes, ...] = ()
        self._looked_at = now

    def work(self) -> Work:
        """What has been counted, and what of it lately."""
        now, totals = self._monotonic(), self._totals()
        while len(self._latest) > 1 and self._latest[1][0] <= now - RATE_SECONDS:
            self._latest.popleft()
        rates = _rates(*self._latest[0], now, totals)
        self._latest.append((now, totals))
        if now - self._looked_at >= SPREADS_SECONDS:
            self._looked_at = now
            self._slowest = self._look(now, totals)
        return Work(totals.steps, totals.failures, totals.retries, rates, self._slowest)

    def _look(self, now: float, totals: Counted) -> tuple[StepTimes, ...]:
        spreads = totals.durations()
        while len(self._moments) > 1 and self._moments[1][0] <= now - WINDOW_SECONDS:
            self._moments.popleft()
        before = self._moments[0][1]
        if now - self._moments[-1][0] >= _KEEP_EVERY_SECONDS:
            self._moments.append((now, spreads))
        return _slowest(before, spreads, totals.bounds)


def _rates(then: float, before: Counted, now: float, totals: Counted) -> Rates:
    passed = now - then
    if passed <= 0:
        return Rates()

    def rate(old: int, new: int) -> float:
        return round(max(0, new - old) / passed, 3)

    return Rates(
        rate(before.steps, totals.steps),
        rate(before.failures, totals.failures),
        rate(before.retries, totals.retries),
    )


def _slowest(before: Spreads, now: Spreads, bounds: Sequence[float]) -> tuple[StepTimes, ...]:
    """The steps with the longest mean among those that ended an attempt since."""
    none = bytes(8 * (len(bounds) + 2))
    found = []
    for pair, numbers in now.items():
        old = before.get(pair, none)
        if numbers != old:
            *counts, seconds = _numbers(numbers)
            *earlier, until_then = _numbers(old)
            completed = int(sum(counts) - sum(earlier))
            if completed > 0:
                lasted = max(0.0, seconds - until_then)
                found.append((lasted / completed, pair, counts, earlier, completed, lasted))
    found.sort(key=lambda each: each[0], reverse=True)
    ends = [*bounds, None]
    return tuple(
        StepTimes(
            *pair, n, round(lasted, 6), tuple((b, int(c - e)) for b, c, e in zip(ends, cs, es, strict=True) if c > e)
        )
        for _, pair, cs, es, n, lasted in found[:STEPS_MAX]
    )


def _numbers(doubles: bytes) -> Sequence[float]:
    return cast("Sequence[float]", memoryview(doubles).cast("d"))
