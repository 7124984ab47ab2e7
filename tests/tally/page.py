"""Pages of metrics, read by the official client's parsers, in both formats."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from tally.numbers import Labels, Numbers, Spread

from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind, Together

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain"
ACCEPTS = (TEXT, OPENMETRICS)
Series = tuple[str, tuple[tuple[str, str], ...]]

_BY_NAME = {each.full_name: each for each in INSTRUMENTS}


def families(text: str) -> list[Metric]:
    """All of a page; the parser of OpenMetrics is a strict one."""
    return list(openmetrics_families(text) if text.rstrip().endswith("# EOF") else text_families(text))


def series_of(text: str) -> dict[Series, float]:
    """Every sample of our own by its name and labels; one that is there twice is a fault."""
    found: dict[Series, float] = {}
    for family in families(text):
        for sample in family.samples:
            if sample.name.startswith("stepwell_"):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found, f"{key} is there twice"
                found[key] = sample.value
    return found


def grows_only(series: Series) -> bool:
    """Whether a sample is a counter's, or one of those of a histogram."""
    name = series[0]
    if name.endswith("_total"):
        return True
    head, _, tail = name.rpartition("_")
    return tail in {"bucket", "count", "sum"} and head in _BY_NAME and _BY_NAME[head].kind is Kind.HISTOGRAM


def numbers_of(text: str) -> Numbers:
    """What a page shows of our instruments; a sample of none of them is a fault. Series that stand at 0 stay away."""
    numbers = Numbers({}, {}, {})
    bounds: dict[tuple[Instrument, Labels], list[tuple[float, float]]] = {}
    for (name, pairs), value in series_of(text).items():
        labels = dict(pairs)
        if name in _BY_NAME and _BY_NAME[name].kind is not Kind.HISTOGRAM:
            instrument = _BY_NAME[name]
            of = numbers.counts if instrument.kind is Kind.COUNTER else numbers.levels
            if value or instrument.kind is Kind.GAUGE:
                of.setdefault(instrument, {})[_values(instrument, labels)] = value
            continue
        head, _, tail = name.rpartition("_")
        instrument = _BY_NAME[head]
        assert instrument.kind is Kind.HISTOGRAM, name
        upper = labels.pop("le", "")
        spread = numbers.spreads.setdefault(instrument, {}).setdefault(_values(instrument, labels), Spread([], 0.0))
        if tail == "bucket":
            bounds.setdefault((instrument, _values(instrument, labels)), []).append((float(upper), value))
        elif tail == "sum":
            spread.total = value
    for (instrument, values), cumulated in bounds.items():
        _fill(instrument, numbers.spreads[instrument][values], sorted(cumulated))
        if not numbers.spreads[instrument][values].count:
            del numbers.spreads[instrument][values]
    return numbers


def _fill(instrument: Instrument, spread: Spread, cumulated: list[tuple[float, float]]) -> None:
    assert [upper for upper, _ in cumulated] == [*map(float, instrument.bounds), float("inf")], instrument.full_name
    before = 0.0
    for _, value in cumulated:
        assert value >= before, f"{instrument.full_name}: buckets go down: {cumulated}"
        spread.buckets.append(value - before)
        before = value


def _values(instrument: Instrument, labels: dict[str, str]) -> Labels:
    names = [label.name for label in instrument.labels]
    if instrument.kind is Kind.GAUGE and instrument.together is Together.APART:
        names.append("shard")
    assert sorted(names) == sorted(labels), f"{instrument.full_name} has the labels {labels}"
    return tuple(labels[name] for name in names)


def label_values(texts: Iterable[str]) -> set[str]:
    """All values of all labels of our own, bounds of buckets apart."""
    return {
        value
        for text in texts
        for _, labels in series_of(text)
        for name, value in labels
        if name not in {"le", "version", "python"}
    }
