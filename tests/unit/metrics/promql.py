"""Whether a query names only metrics, labels and label values that workers show."""

from __future__ import annotations

import re
from collections.abc import Collection

from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind, Together

SCRAPED = {"job", "instance"}
"""Labels that Prometheus gives to all that it scrapes."""
ALERTS = {"alertname", "alertstate", "severity", "flow", "step"}
"""Labels of Prometheus' own series of our alerts."""
_WORDS = re.compile(r"[a-zA-Z_:][\w:]*")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def samples() -> dict[str, tuple[Instrument, set[str]]]:
    """Each sample's name, with its instrument and the labels that it has beside the scrape's."""
    found: dict[str, tuple[Instrument, set[str]]] = {}
    for each in INSTRUMENTS:
        labels = {label.name for label in each.labels}
        if each.kind is Kind.HISTOGRAM:
            found[f"{each.full_name}_bucket"] = (each, {*labels, "le"})
            found[f"{each.full_name}_sum"] = found[f"{each.full_name}_count"] = (each, labels)
        else:
            apart = each.kind is Kind.GAUGE and each.together is Together.APART
            found[each.full_name] = (each, {*labels, "shard"} if apart else labels)
    return found


def named_in(promql: str) -> set[str]:
    """The names of workers' samples in a query."""
    return {word for word in _WORDS.findall(_bare(promql)) if word.startswith("stepwell")}


def problems_of(promql: str, recorded: Collection[str] = ()) -> list[str]:
    """What a query names that there is not. `recorded`: names of recording rules; `stepwell:METRIC:HOW` has METRIC's
    labels."""
    known = samples()
    problems: list[str] = []
    labels = SCRAPED | (ALERTS if "ALERTS{" in promql else set())
    for name, matchers in _SELECTOR.findall(promql):
        if not name.startswith("stepwell") or name == "stepwell":
            continue
        if name in recorded:
            name = f"stepwell_{name.split(':')[1]}_total"
        if name not in known:
            problems.append(f"no metric {name}")
            continue
        instrument, own = known[name]
        labels |= own
        for label, operator, value in _MATCHER.findall(matchers):
            problems += _problems_of_matcher(instrument, own, label, operator, value)
    for group in _GROUPING.findall(promql):
        problems += [f"no label {label}" for label in re.findall(r"\w+", group) if label not in labels]
    return problems


def _problems_of_matcher(instrument: Instrument, own: set[str], label: str, operator: str, value: str) -> list[str]:
    if label not in own | SCRAPED:
        return [f"{instrument.full_name} has no label {label}"]
    if label == "le":
        bounds = {str(float(bound)) for bound in instrument.bounds} | {"+Inf"}
        return [] if value in bounds else [f"{instrument.full_name} has no bound {value}"]
    [values] = [each.values for each in instrument.labels if each.name == label] or [None]
    if values is None or value.startswith("$"):
        return []
    wanted = value.split("|") if operator in ("=~", "!~") else [value]
    return [f"{instrument.full_name} has no {label} {each}" for each in wanted if each not in values]


def _bare(promql: str) -> str:
    """Without what stands in quotes, and without comments."""
    return re.sub(r"#[^\n]*", "", re.sub(r'"(?:[^"\\]|\\.)*"', '""', promql))
