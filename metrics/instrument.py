"""What a metric is: its kind, labels, buckets, and how the numbers of several shards become one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["PREFIX", "Instrument", "Kind", "Label", "Together"]

PREFIX: Final = "stepwell_"


class Kind(Enum):
    """What a metric is; the values are Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Together(Enum):
    """How the gauges of several shards become one; counters and histograms are always added up."""

    SUM = "sum"
    GREATEST = "greatest"
    LEAST = "least"
    APART = "apart"
    """Each shard's own, told apart by the label `shard`: its index, which its successor has too."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label and all its values; `values` is None for names that come from code, and for facts of an info metric."""

    name: str
    values: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)  # each is one of its kind, and is looked up often
class Instrument:
    """One metric. `name` lacks the prefix, and a counter's the suffix `_total`; seconds and bytes are the units."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[Label, ...] = ()
    bounds: tuple[float, ...] = ()
    together: Together = Together.SUM
    exemplars: bool = False
    """Whether it remembers, for a counter, which execution was counted last, and for a histogram's slow buckets which
    fell into them."""

    @property
    def full_name(self) -> str:
        """As Prometheus has it: what a query names, but for the suffixes of a histogram's samples."""
        return f"{PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"
