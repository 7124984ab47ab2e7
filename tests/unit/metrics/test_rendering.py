"""Pages in both formats say what was counted, as their own parsers read them."""

from __future__ import annotations

import gzip
import random

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from stepwell.actors.kit.clock import VirtualClock
from stepwell.metrics import instruments as i
from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind
from stepwell.metrics.rendering import Page, samples_of
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
PAIR = ("checkout", "charge")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class MemorySource:
    """A sheet as it was read."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self) -> bytes:
        return self.content

    def close(self) -> None:
        pass


def fill(sheet: Sheet, instrument: Instrument) -> None:
    """One series of it at least."""
    values = [min(label.values) if label.values else f"a {label.name}" for label in instrument.labels]
    if instrument.kind is Kind.COUNTER:
        sheet.count(instrument, *values).inc(3, "order-7")
    elif instrument.kind is Kind.HISTOGRAM:
        for value in (instrument.bounds[0], instrument.bounds[-1], instrument.bounds[-1] * 2):
            sheet.spread(instrument, *values).observe(value, "order-7")
    else:
        sheet.level(instrument, *values).set(0.25)


def own(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if not key[0].startswith("process_")}


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_a_parser_reads_of_every_instrument_what_was_counted(sheet: Sheet, totals: Totals, accept: str) -> None:
    for instrument in INSTRUMENTS:
        fill(sheet, instrument)
    page = Scrapes(totals, Sheet.in_memory()).answer(accept).body.decode()
    parse = parse_openmetrics if accept else parse_text
    found: Samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(page)
        for sample in family.samples
    }
    wanted: Samples = {(name, frozenset(labels.items())): value for name, labels, value in samples_of(totals.take())}
    assert own(found) == wanted
    assert {name for name, _ in wanted} >= {each.full_name for each in INSTRUMENTS if each.kind is not Kind.HISTOGRAM}
    assert page.endswith("# EOF\n") == bool(accept)


def test_series_that_come_later_are_shown_beside_the_first(sheet: Sheet, scrapes: Scrapes) -> None:
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc()
    scrapes.answer()
    sheet.count(i.COMMITS, "ok").inc()
    sheet.count(i.STEP_ATTEMPTS, "checkout", "ship", "ok").inc()
    page = scrapes.answer().body.decode()
    families = {family.name: family.samples for family in parse_text(page)}
    assert len(families["stepwell_step_attempts"]) == 2
    assert len(families["stepwell_commits"]) == 1
    assert page.count("# TYPE stepwell_step_attempts_total counter\n") == 1


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
@pytest.mark.parametrize("seed", range(3))
def test_a_page_that_keeps_its_lines_is_the_page_that_is_made_anew(openmetrics: bool, seed: int) -> None:
    draw, clock, totals, kept = random.Random(seed), VirtualClock(), Totals(), Page(openmetrics)
    sheets = [Sheet.in_memory(clock) for _ in range(2)]
    for place, sheet in enumerate(sheets):
        totals.attach(place, sheet.source)
    shown: set[str] = set()
    for scrape in range(30):
        for _ in range(draw.randrange(4)):
            sheet, step, execution = draw.choice(sheets), f"step_{draw.randrange(3)}", f"order-{scrape}"
            sheet.count(i.STEP_FAILURES, "checkout", step, "fatal").inc(1, execution)
            sheet.count(i.EXECUTIONS_ENDED, "checkout", "error").inc(1, execution)
            sheet.spread(i.STEP_DURATION, "checkout", step).observe(draw.choice((0.25, 45, 1e6)), execution)
            sheet.spread(i.RETRY_LATENESS).observe(draw.choice((0.25, 45, 1e6)), execution)
            sheet.spread(i.COMMIT_BATCH_SIZE).observe(3)
        clock.advance(1)
        taken = totals.take(marks=openmetrics)
        page = kept.render(taken)
        assert page == Page(openmetrics).render(taken)
        shown.add(page)
    assert len(shown) > 10


def test_a_counter_and_a_gauge_of_one_name_are_both_there_in_both_formats(sheet: Sheet, scrapes: Scrapes) -> None:
    sheet.count(i.EXECUTIONS_ENDED, "checkout", "error").inc(1, "order-7")
    sheet.level(i.EXECUTIONS_NOW, "error").set(2)
    text = scrapes.answer().body.decode()
    assert "# TYPE stepwell_executions_total counter\n" in text
    assert "# TYPE stepwell_executions gauge\n" in text
    open_text = scrapes.answer(OPENMETRICS).body.decode()
    assert "# TYPE stepwell_executions_total unknown\n" in open_text
    assert "# TYPE stepwell_executions gauge\n" in open_text
    for page in (text, open_text):
        assert 'stepwell_executions_total{flow="checkout",status="error"} 1\n' in page
        assert 'stepwell_executions{status="error"} 2\n' in page


def test_exemplars_are_shown_to_whoever_takes_openmetrics() -> None:
    clock = VirtualClock()
    sheet = Sheet.in_memory(clock)
    totals = Totals()
    totals.attach(0, sheet.source)
    sheet.count(i.STEP_FAILURES, *PAIR, "fatal").inc(1, "order-7")
    sheet.spread(i.STEP_DURATION, *PAIR).observe(45, "order-8")
    sheet.count(i.STEP_FAILURES, *PAIR, "budget").inc(1, "x" * 128)
    scrapes = Scrapes(totals, Sheet.in_memory())
    families = {family.name: family for family in parse_openmetrics(scrapes.answer(OPENMETRICS).body.decode())}
    exemplars = {
        sample.labels.get("le", sample.labels.get("reason", "")): sample.exemplar
        for name in ("stepwell_step_failures", "stepwell_step_duration_seconds")
        for sample in families[name].samples
        if sample.exemplar is not None
    }
    assert set(exemplars) == {"fatal", "60.0"}, "one is too long for the format"
    assert exemplars["fatal"].labels == {"execution": "order-7"}
    assert exemplars["60.0"].labels == {"execution": "order-8"}
    assert exemplars["60.0"].value == 45
    assert float(exemplars["60.0"].timestamp) == pytest.approx(clock.now_ms() / 1000, abs=0.002)
    assert b"order-" not in scrapes.answer().body


def test_an_exemplar_that_was_read_while_it_was_written_is_on_the_next_page(sheet: Sheet) -> None:
    sheet.count(i.STEP_FAILURES, *PAIR, "fatal").inc(1, "order-7")
    sheet.spread(i.STEP_DURATION, *PAIR).observe(45, "order-7")
    torn = MemorySource(sheet.source.read().replace(b"order-7", b"order-6"))
    totals = Totals()
    totals.attach(0, torn)
    scrapes = Scrapes(totals, Sheet.in_memory())
    assert b" # {" not in scrapes.answer(OPENMETRICS).body
    torn.content = sheet.source.read()
    assert scrapes.answer(OPENMETRICS).body.count(b' # {execution="order-7"} ') == 2


@pytest.mark.parametrize(
    ("execution", "labels"),
    [
        ("order-7", {"trace_id", "execution"}),
        ("x" * 79, {"trace_id", "execution"}),
        ("x" * 80, {"trace_id"}),
        ("x" * 128, {"trace_id"}),
    ],
)
def test_the_exemplar_of_a_traced_execution_leads_to_its_trace(execution: str, labels: set[str]) -> None:
    sheet = Sheet.in_memory(VirtualClock())
    sheet.trace = {execution: "0af7651916cd43dd8448eb211c80319c"}.__getitem__
    totals = Totals()
    totals.attach(0, sheet.source)
    sheet.count(i.STEP_FAILURES, *PAIR, "fatal").inc(1, execution)
    page = Scrapes(totals, Sheet.in_memory()).answer(OPENMETRICS).body.decode()
    [exemplar] = [
        sample.exemplar
        for family in parse_openmetrics(page)
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert set(exemplar.labels) == labels
    assert exemplar.labels["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert exemplar.labels.get("execution", execution) == execution
    assert sum(map(len, [*exemplar.labels, *exemplar.labels.values()])) <= 128


def test_odd_names_are_escaped(sheet: Sheet, totals: Totals) -> None:
    names = ['a"b', "a\\b", "100%d", "{}", "é€", "a\\nb", "%s"]
    for name in names:
        sheet.spread(i.STEP_DURATION, name, name).observe(1)
        sheet.count(i.STEP_CRASHES, name, name).inc()
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        page = Scrapes(totals, Sheet.in_memory()).answer(accept).body.decode()
        families = {family.name: family.samples for family in parse(page)}
        assert [sample.labels["flow"] for sample in families["stepwell_step_crashes"]] == names
        buckets = families["stepwell_step_duration_seconds"]
        assert {sample.labels["step"] for sample in buckets} == set(names)


@pytest.mark.parametrize(
    ("header", "taken"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("*", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_a_page_is_compressed_for_whoever_takes_it(scrapes: Scrapes, sheet: Sheet, header: str, taken: bool) -> None:
    sheet.count(i.HEALED_EXECUTIONS).inc()
    answer = scrapes.answer("", header)
    assert answer.encoding == ("gzip" if taken else "")
    page = gzip.decompress(answer.body) if taken else answer.body
    assert b"stepwell_healed_executions_total 1\n" in page


def test_the_process_itself_is_shown(scrapes: Scrapes) -> None:
    assert scrapes.answer().body.count(b"\nprocess_resident_memory_bytes ") == 1
    assert scrapes.answer(OPENMETRICS).body.count(b"\nprocess_resident_memory_bytes ") == 1
