"""Counters and histograms that one thread writes and any other may read: plain numbers, put together at each scrape.

The Prometheus client's own take a lock for each number, which costs a completed step 3 us.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

__all__ = ["Count", "PlainCounter", "PlainHistogram", "Spread"]


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """One more."""
        self.value += 1


class Spread:
    """One series of a histogram: how many values lie in each bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value; a bucket holds what equals its bound."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class PlainCounter(Collector):
    """A counter; one without labels shows 0 before anything is counted."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._head = (name, meaning, labels)
        self._series: dict[tuple[str, ...], Count] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """The series of these values; only the thread that writes may ask."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Count()
        return series

    @property
    def series(self) -> dict[tuple[str, ...], Count]:
        """All series there are now, by the values of their labels."""
        return self._series.copy()

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """All series as they stand now."""
        family = self._family()
        for values, series in self.series.items():
            family.add_metric(values, series.value)
        return [family]

    def _family(self) -> CounterMetricFamily:
        name, meaning, labels = self._head
        return CounterMetricFamily(name, meaning, labels=labels)


class PlainHistogram(Collector):
    """A histogram; one without labels shows zeros before anything is observed. `bounds` ascend to less than 1e6."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: tuple[str, ...],
        bounds: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._head = (name, meaning, labels)
        self._bounds = bounds
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._series: dict[tuple[str, ...], Spread] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Spread:
        """The series of these values; only the thread that writes may ask."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Spread(self._bounds)
        return series

    @property
    def series(self) -> dict[tuple[str, ...], Spread]:
        """All series there are now, by the values of their labels."""
        return self._series.copy()

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """All series as they stand now."""
        family = self._family()
        for values, series in self.series.items():
            buckets = list(zip(self._names, accumulate(series.counts.copy()), strict=True))
            family.add_metric(values, buckets, series.sum)
        return [family]

    def _family(self) -> HistogramMetricFamily:
        name, meaning, labels = self._head
        return HistogramMetricFamily(name, meaning, labels=labels)
