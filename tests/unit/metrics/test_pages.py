"""docs/metrics.md and docs/events.md say what the code says, no less and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.metrics.promql import named_in, problems_of

from stepwell.actors import store_events
from stepwell.core import events
from stepwell.metrics.instrument import Instrument, Kind
from stepwell.metrics.instruments import INSTRUMENTS, OTHER
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals

ROOT = Path(__file__).resolve().parents[3]
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
EVENTS = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^ {4}(\S.*(?:\n {6}.*)*)", METRICS, re.MULTILINE)


def rows(page: str, first: str) -> Iterator[list[str]]:
    """The cells of all table rows whose first cell is code that begins so."""
    for line in page.splitlines():
        if line.startswith(f"| `{first}"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def row_of(instrument: Instrument) -> tuple[str, str]:
    """Its first two cells, as they must be."""
    labels = ",".join(label.name for label in instrument.labels)
    told = [instrument.kind.value]
    for label in instrument.labels:
        if label.values is not None:
            known = [*sorted(label.values - {OTHER}), *([OTHER] if OTHER in label.values else [])]
            told.append(f"{label.name}: " + " ".join(f"`{value}`" for value in known))
    if instrument.kind is Kind.HISTOGRAM:
        told.append("buckets: " + " ".join(f"{bound:g}" for bound in instrument.bounds))
    if instrument.exemplars:
        told.append("exemplars")
    return f"`{instrument.full_name}{'{' + labels + '}' if labels else ''}`", "; ".join(told)


def test_the_page_has_each_metric_once_with_its_labels_values_and_buckets() -> None:
    page = [(name, kind) for name, kind, *_ in rows(METRICS, "stepwell_")]
    assert sorted(page) == sorted(row_of(each) for each in INSTRUMENTS)


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda each: f"{each.full_name} {each.kind.value}")
def test_each_metric_says_what_it_tells_and_what_to_do_when_it_moves(instrument: Instrument) -> None:
    (tells, to_do) = next(
        rest for name, kind, *rest in rows(METRICS, "stepwell_") if (name, kind) == row_of(instrument)
    )
    assert tells == instrument.meaning
    assert len(to_do) > 10
    assert to_do.endswith(".")
    known = {each.full_name for each in INSTRUMENTS}
    assert set(re.findall(r"stepwell_[a-z_]+", to_do)) <= known


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_page_names_only_what_there_is(query: str) -> None:
    assert named_in(query)
    assert problems_of(query) == []


@pytest.mark.parametrize(
    ("kinds", "columns"),
    [(events.EVENTS, (1, 3, 4)), (store_events.STORE_EVENTS, (1, 2, 3))],
)
def test_each_event_is_on_the_page_with_its_fields_and_where_it_comes_from(
    kinds: Any, columns: tuple[int, ...]
) -> None:
    names = [kind.__name__ for kind in kinds]
    table = {words(row[0])[0]: row for row in rows(EVENTS, "") if words(row[0])[0] in names}
    assert list(table) == names
    fields_at, emitted_at, metrics_at = columns
    for kind in kinds:
        row = table[kind.__name__]
        always = {"execution_id", "flow", "step", "path"} if kind in events.EVENTS else set()
        expected = [
            field for field in kind.__struct_fields__ if field not in always or (field == "path" and _odd(kind))
        ]
        assert words(row[fields_at]) == expected, kind
        assert sorted(words(row[emitted_at])) == sorted(_emitters(kind)), kind
        assert set(words(row[metrics_at])) <= {each.full_name for each in INSTRUMENTS}, kind


def _odd(kind: type) -> bool:
    return kind is events.ExecutionParked


def _emitters(kind: type) -> set[str]:
    """The product's files that make such an event."""
    name, module = kind.__name__, kind.__module__
    by_module = re.compile(rf"(?<!case )\b{module.rpartition('.')[2]}\.{name}\(")
    by_name = re.compile(rf"from {re.escape(module)} import [^\n]*\b{name}\b")
    made = re.compile(rf"(?<!class ){name}\(")
    found = set()
    for file in [file for folder in ("runtime", "actors") for file in (ROOT / folder).rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        if by_module.search(text) or (by_name.search(text) and made.search(text)):
            found.add(file.relative_to(ROOT).as_posix())
    return found


def test_the_metrics_that_an_event_moves_are_on_the_page(one_of_each: list[events.Event]) -> None:
    table = {words(row[0])[0]: set(words(row[4])) for row in rows(EVENTS, "") if len(row) == 5}
    for event in one_of_each:
        sheet = Sheet.in_memory()
        before = dict(_samples(MetricsSubscriber(sheet), sheet))
        tell = MetricsSubscriber(sheet)
        tell(event)
        moved = {name for name, value in _samples(tell, sheet) if before.get(name, 0) != value}
        assert moved <= table[type(event).__name__], event
        assert bool(moved) == bool(table[type(event).__name__]), event


def _samples(_: object, sheet: Sheet) -> Iterator[tuple[str, float]]:
    totals = Totals()
    totals.attach(0, sheet.source)
    sums: dict[str, float] = {}
    for name, _labels, value in samples_of(totals.take()):
        name = re.sub(r"_(bucket|sum|count)$", "", name)
        sums[name] = sums.get(name, 0) + value
    yield from sums.items()
