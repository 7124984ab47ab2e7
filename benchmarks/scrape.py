"""What do metrics cost: a page of 1,000 steps, a step that is counted, and the shards of a worker that is scraped?"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage
from stepwell.actors.bus import Bus
from stepwell.core import events
from stepwell.core.records import FailureKind
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.segments import SheetFile
from stepwell.metrics.shard import ShardMetrics
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.store.replies import Committed
from stepwell.store.requests import Commit

__all__ = ["run"]

FLOWS, STEPS, SHARDS = 50, 20, 2
IN_FLIGHT = 50
BATCH = 20
SCRAPE_EVERY_SECONDS = 0.1
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
FORMATS = {
    "text": ("", ""),
    "text, gzip": ("", "gzip"),
    "OpenMetrics": (OPENMETRICS, ""),
    "OpenMetrics, gzip": (OPENMETRICS, "gzip"),
}
AS_PROMETHEUS = "OpenMetrics, gzip"
STORM = "OpenMetrics, gzip, all has happened to all again"
HOW = """two shards' files in which 50 flows of 20 steps have met everything (completed, failed in each way, backed off,
gave up), read and written as pages in turns, and before each page all that happens again to a tenth of the steps, once
to all of them: five rounds; that page of a worker whose shard has died 500 times and has seen 10,000 errors of which no
two are alike, beside that of a new one: five rounds; events of five-step executions that complete and the batches that
write them, told to what counts them and to nobody: five rounds; 2,000 five-step flows on one shard, 50 in flight, whose
parent is scraped ten times a second or never: three rounds."""


class Page(NamedTuple):
    """What one page took."""

    seconds: float
    cpu_seconds: float
    size: int


def run(scale: Scale, progress: Progress) -> Result:
    """Pages of what everything has happened to, single events, and a worker that is scraped or not."""
    rounds = scale.of(5, 1)
    progress.plan((len(FORMATS) + 5) * rounds + 2 * scale.of(3, 1))
    pages, lines = _pages(scale, rounds, progress)
    aged = _aged(scale, rounds, progress)
    told = _told(scale, rounds, progress)
    loads, facts = _scraped(scale, progress)
    return _result(pages, lines, aged, told, loads, facts)


def _result(
    pages: dict[str, list[Page]],
    lines: int,
    aged: dict[str, list[float]],
    told: dict[str, list[float]],
    loads: dict[str, list[Measured]],
    facts: dict[str, str],
) -> Result:
    step = [(w - o) * 1e6 for w, o in zip(told["counted"], told["not counted"], strict=True)]
    rows = [
        Row.of(
            "a page of 1,000 steps, as Prometheus asks for it",
            "ms",
            [p.seconds * 1000 for p in pages[AS_PROMETHEUS]],
            "<= 100",
        ),
        Row.of(
            "where everything has happened to all of them since the one before",
            "ms",
            [p.seconds * 1000 for p in pages[STORM]],
            "<= 100",
        ),
        Row.of(
            "a page after 500 restarts and 10,000 different errors / of a new worker",
            "",
            [a / b for a, b in zip(aged["aged"], aged["new"], strict=True)],
            "about 1",
        ),
        Row.of("a step that completes: CPU of counting it", "us/step", step, "<= 5"),
        Row.of(
            "shard CPU per step, scraped ten times a second / never",
            "",
            [a.shard_ms / b.shard_ms for a, b in zip(loads["scraped"], loads["not scraped"], strict=True)],
            "about 1",
        ),
        Row("lines of that page", lines, "lines", better="neither"),
    ]
    for name, found in pages.items():
        rows += [
            Row.of(f"{name}: time", "ms", [page.seconds * 1000 for page in found]),
            Row.of(f"{name}: CPU", "ms", [page.cpu_seconds * 1000 for page in found]),
            Row.of(f"{name}: size", "KiB", [page.size / 1024 for page in found]),
        ]
    chart = bars(
        "page",
        "What does a page of the metrics of 1,000 steps cost?",
        "ms",
        {name: [page.seconds * 1000 for page in found] for name, found in pages.items()},
        aim=100,
    )
    return Result("scrape", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()), answers=2)


def _pages(scale: Scale, rounds: int, progress: Progress) -> tuple[dict[str, list[Page]], int]:
    flows = scale.of(FLOWS, 2)
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-") as folder:
        totals = Totals()
        own = Sheet.in_memory()
        totals.attach(-1, own.source)
        scrapes = Scrapes(totals, own)
        shards = []
        for place in range(SHARDS):
            path = Path(folder) / f"{place}.sheet"
            totals.attach(place, SheetFile(path))
            shards.append(MetricsSubscriber(Sheet.open(path)))

        turns = itertools.count()

        def page(accept: str, encoding: str, share: int = 10) -> Page:
            steps = range(next(turns) % share, flows * STEPS, share)
            for tell in shards:
                _everything(tell, steps)
            began, used = time.perf_counter(), time.thread_time()
            answer = scrapes.answer(accept, encoding)
            return Page(time.perf_counter() - began, time.thread_time() - used, len(answer.body))

        for accept, encoding in FORMATS.values():  # what is made once for each series
            page(accept, encoding, share=1)
        lines = scrapes.answer().body.count(b"\n")
        variants = {name: partial(page, *headers) for name, headers in FORMATS.items()}
        variants[STORM] = partial(page, *FORMATS[AS_PROMETHEUS], share=1)
        found = alternate(variants, rounds, progress)
        for place in range(SHARDS):
            totals.end(place)
    return found, lines


def _aged(scale: Scale, rounds: int, progress: Progress) -> dict[str, list[float]]:
    """Seconds for a page of a worker that has just started, and of one whose shard has died often."""
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-") as folder:
        workers = {"new": _lived(Path(folder), 0, 0), "aged": _lived(Path(folder), scale.of(500, 5), 20)}

        def page(scrapes: Scrapes) -> float:
            began = time.perf_counter()
            scrapes.answer(OPENMETRICS, "gzip")
            return time.perf_counter() - began

        return alternate({name: partial(page, scrapes) for name, scrapes in workers.items()}, rounds, progress)


def _lived(folder: Path, deaths: int, errors: int) -> Scrapes:
    """A worker whose shard had so many processes before this one, each of which saw so many different errors."""
    totals, own = Totals(), Sheet.in_memory()
    totals.attach(-1, own.source)
    path = folder / f"{deaths}.sheet"
    for life in range(deaths + 1):
        totals.attach(0, SheetFile(path))
        tell = MetricsSubscriber(Sheet.open(path))
        _everything(tell, range(0, FLOWS * STEPS, 1 if life == deaths else 100))
        for number in range(errors):
            odd = f"{life}-{number}"
            where = (odd, "flow_00", "step_00", "step_00")
            tell(events.AttemptFailed(*where, 1, 5, "error", f"Error{odd}", odd, 100, 0, "t", "k", False, 0))
    scrapes = Scrapes(totals, own)
    scrapes.answer(OPENMETRICS, "gzip")  # what is made once for each series
    return scrapes


def _everything(tell: Callable[[events.Event], None], steps: range) -> None:
    """Whatever can happen to a step happens to each of these."""
    for number in steps:
        flow, step = f"flow_{number // STEPS:02}", f"step_{number % STEPS:02}"
        where = (f"execution-{number}", flow, step, step)
        tell(events.StepCompleted(*where, 1, number, 0, number % 7))
        kinds: tuple[FailureKind, ...] = ("error", "timeout", "crash")
        for kind in kinds:
            failed = events.AttemptFailed(*where, 1, 5, kind, "X", "x", 100 + number, 0, "t", "k", kind == "error", 0)
            tell(failed)
        for reason in ("exhausted", "fatal", "payload"):
            tell(events.StepGaveUp(*where, 5, reason, "error", "X", "x", "t", "k", 0, 0, 10 * number))
        tell(events.StepInterrupted(*where, 1, 1, 0))


def _told(scale: Scale, rounds: int, progress: Progress) -> dict[str, list[float]]:
    """CPU seconds a step of telling a bus of executions that complete."""
    count = scale.of(20_000, 20)
    told: list[events.Event] = []
    for number in range(count):
        name = f"execution-{number}"
        told.append(events.ExecutionBegan(name, "checkout", 3, 0))
        told += [events.StepCompleted(name, "checkout", f"step_{step}", "p", 1, 12, 0, 1) for step in range(5)]
        told.append(events.ExecutionEnded(name, "checkout", "completed", "", 80, 0))
    sheet = Sheet.in_memory()
    counted, counts = Bus((MetricsSubscriber(sheet),)), ShardMetrics(sheet)
    commit = Commit(0, "execution-1", "lease", 1, "c1", 0, [], "running", "running")
    requests, replies = [commit] * BATCH, [Committed(False)] * BATCH

    def measured(bus: Bus, written: Callable[[Sequence[object], Sequence[object], float], None]) -> float:
        used = time.thread_time()
        for number, event in enumerate(told):
            bus.publish(event)
            if number % BATCH == 0:
                written(requests, replies, 0.002)
        return (time.thread_time() - used) / (5 * count)

    variants = {
        "counted": partial(measured, counted, counts.batch_written),
        "not counted": partial(measured, Bus(), lambda *_: None),
    }
    return alternate(variants, rounds, progress)


def _scraped(scale: Scale, progress: Progress) -> tuple[dict[str, list[Measured]], dict[str, str]]:
    many, rounds = scale.of(2000, 200), scale.of(3, 1)
    with Stage(shards=1) as stage:
        load = stage.load("five")
        load.run(scale.of(300, 5), IN_FLIGHT)

        def measured(scraped: bool) -> Measured:
            with _scraping(stage.host.metrics_port() if scraped else None):
                return stage.measure(load, many, IN_FLIGHT, 5)

        variants = {name: partial(measured, name == "scraped") for name in ("not scraped", "scraped")}
        return alternate(variants, rounds, progress), stage.facts()


@contextmanager
def _scraping(port: int | None) -> Iterator[None]:
    """Somebody scrapes that port as long as the block lasts, if there is one."""
    over = threading.Event()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"})

    def scrape() -> None:
        while not over.wait(SCRAPE_EVERY_SECONDS):
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()

    thread = threading.Thread(target=scrape)
    if port is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if port is not None:
            thread.join()
