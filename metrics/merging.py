"""Metrics of many processes as one: totals outlive the processes that counted them, and series don't grow.

Each process answers with all its samples. What a process that is gone had counted stays in a base; what is a level and
no count (a gauge) goes with it. No sample says which process it is from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Metric

__all__ = ["Family", "MergedMetrics", "Sample", "families_of"]

GAUGE: Final = "gauge"
# Gauges of which the greatest counts, where a sum would mean nothing.
GREATEST: Final[frozenset[str]] = frozenset({"stepwell_guarantee_info"})
_UNSUMMED: Final = frozenset({GAUGE, "info", "stateset", "unknown"})


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value; `labels` are pairs of names and values."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A metric with all its samples; `kind` as Prometheus names it."""

    name: str
    kind: str
    meaning: str
    samples: tuple[Sample, ...]


def families_of(registry: CollectorRegistry) -> tuple[Family, ...]:
    """All that a registry knows now, without the times at which its series began."""
    return tuple(
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            tuple(
                Sample(sample.name, tuple(sample.labels.items()), sample.value)
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ),
        )
        for metric in registry.collect()
    )


class MergedMetrics:
    """Sums over processes. Each is known by any name that no other process ever had. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: tuple[Family, ...] = ()
        self._latest: dict[str, tuple[Family, ...]] = {}

    def update(self, process: str, families: tuple[Family, ...]) -> None:
        """What a living process says of itself replaces what it said before."""
        with self._lock:
            self._latest[process] = families

    def end(self, process: str) -> None:
        """A process is gone: its counts stay."""
        with self._lock:
            families = self._latest.pop(process, ())
            self._base = _merged((self._base, [each for each in families if each.kind not in _UNSUMMED]))

    def collect(self) -> list[Metric]:
        """All of them together."""
        with self._lock:
            known = (self._base, *self._latest.values())
        metrics = []
        for family in _merged(known):
            metric = Metric(family.name, family.meaning, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, dict(sample.labels), sample.value)
            metrics.append(metric)
        return metrics


def _merged(parts: Iterable[Iterable[Family]]) -> tuple[Family, ...]:
    heads: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for part in parts:
        for family in part:
            heads.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            greatest = family.name in GREATEST
            for sample in family.samples:
                key = (sample.name, sample.labels)
                before = known.get(key)
                if before is None:
                    known[key] = sample.value
                else:
                    known[key] = max(before, sample.value) if greatest else before + sample.value
    return tuple(
        Family(name, head.kind, head.meaning, tuple(Sample(*key, value) for key, value in values[name].items()))
        for name, head in heads.items()
    )
