"""What should have been counted, and what was: by instrument and label values."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose

from stepwell.metrics.instruments import Instrument, Kind

Labels = tuple[str, ...]
SUM_TOLERANCE = 1e-6


@dataclass
class Spread:
    """A histogram's series as a page shows it: how many in each bucket (the last one has no bound), and their sum."""

    buckets: list[float]
    total: float

    @property
    def count(self) -> float:
        return sum(self.buckets)


@dataclass
class Tally:
    """What somebody knows to have happened: counts, and the values that histograms should hold."""

    counts: dict[Instrument, Counter[Labels]] = field(default_factory=lambda: defaultdict(Counter))
    values: dict[Instrument, dict[Labels, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    either: dict[Instrument, Counter[tuple[Labels, Labels]]] = field(default_factory=lambda: defaultdict(Counter))
    """Counts of which it is not known which of two series has them."""
    backing_off: int = 0
    """Steps that wait for their next attempt."""
    running: int = 0
    """Steps that run."""
    later: int = 0
    """Attempts that ended and were not the first of their step."""

    def count(self, instrument: Instrument, *labels: str, n: int = 1) -> None:
        assert instrument.kind is Kind.COUNTER
        self.counts[instrument][labels] += n

    def count_either(self, instrument: Instrument, one: Labels, other: Labels) -> None:
        assert instrument.kind is Kind.COUNTER
        self.either[instrument][one, other] += 1

    def observe(self, instrument: Instrument, *labels: str, value: float) -> None:
        assert instrument.kind is Kind.HISTOGRAM
        self.values[instrument][labels].append(value)

    def add(self, other: Tally) -> None:
        for instrument, counts in other.counts.items():
            self.counts[instrument] += counts
        for instrument, values in other.values.items():
            for labels, seen in values.items():
                self.values[instrument][labels] += seen
        for instrument, pairs in other.either.items():
            self.either[instrument] += pairs
        self.backing_off += other.backing_off
        self.running += other.running
        self.later += other.later

    def settled(self, instrument: Instrument, seen: Mapping[Labels, float]) -> Counter[Labels]:
        """Its counts, with each that may be either's given to the one that lacks it."""
        counts = Counter(self.counts[instrument])
        for (one, other), n in self.either[instrument].items():
            ones = min(max(int(seen.get(one, 0)) - counts[one], 0), n)
            counts[one] += ones
            counts[other] += n - ones
        return counts

    def spreads(self, instrument: Instrument) -> dict[Labels, Spread]:
        """Its values put into the instrument's buckets."""
        found = {}
        for labels, values in self.values[instrument].items():
            buckets = [0.0] * (len(instrument.bounds) + 1)
            for value in values:
                buckets[bisect_left(instrument.bounds, value)] += 1
            found[labels] = Spread(buckets, sum(values))
        return found


@dataclass
class Numbers:
    """What was counted; series that stand at 0 are left out of comparisons."""

    counts: dict[Instrument, dict[Labels, float]]
    spreads: dict[Instrument, dict[Labels, Spread]]
    levels: dict[Instrument, dict[Labels, float]]

    def count(self, instrument: Instrument, **wanted: str) -> float:
        """The sum of the counter's series that have these labels."""
        names = [label.name for label in instrument.labels]
        return sum(
            value
            for labels, value in self.counts.get(instrument, {}).items()
            if wanted.items() <= dict(zip(names, labels, strict=True)).items()
        )


def differences(known: Tally, shown: Numbers, instruments: Iterable[Instrument]) -> list[str]:
    """Where what was counted is not what is known, in words; sums within rounding."""
    return [text for _, _, text in each_difference(known, shown, instruments)]


def each_difference(
    known: Tally, shown: Numbers, instruments: Iterable[Instrument]
) -> Iterator[tuple[Instrument, Labels, str]]:
    """The same, with the series."""
    for instrument in instruments:
        name = instrument.full_name
        if instrument.kind is Kind.COUNTER:
            seen = shown.counts.get(instrument, {})
            counts = known.settled(instrument, seen)
            for labels in sorted({*counts, *seen}):
                if counts[labels] != seen.get(labels, 0):
                    text = f"{name}{list(labels)} is {seen.get(labels, 0):g}, not {counts[labels]}"
                    yield instrument, labels, text
            continue
        spreads, shown_spreads = known.spreads(instrument), shown.spreads.get(instrument, {})
        nothing = Spread([0.0] * (len(instrument.bounds) + 1), 0.0)
        for labels in sorted({*spreads, *shown_spreads}):
            is_so, should = shown_spreads.get(labels, nothing), spreads.get(labels, nothing)
            if is_so.buckets != should.buckets or not isclose(is_so.total, should.total, abs_tol=SUM_TOLERANCE):
                yield instrument, labels, f"{name}{list(labels)} is {is_so}, not {should}"
