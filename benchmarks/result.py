"""What a measurement answers, and how much it measures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

__all__ = ["Result", "Row", "Scale", "percentile"]


@dataclass(frozen=True, slots=True)
class Row:
    """One number. `low` and `high` are the least and the most where it was measured several times; `aim` is a wish."""

    measure: str
    value: float
    unit: str
    aim: str = ""
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, measure: str, unit: str, values: Sequence[float], aim: str = "") -> Self:
        """The median of what was measured several times."""
        return cls(measure, statistics.median(values), unit, aim, min(values), max(values))


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one question."""

    name: str
    question: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Scale:
    """`quick` only shows that everything works: its numbers mean nothing."""

    quick: bool = False

    def of(self, full: int, quick: int) -> int:
        """A count, by scale."""
        return quick if self.quick else full


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
