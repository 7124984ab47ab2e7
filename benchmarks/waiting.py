"""What do 100,000 executions cost that wait for long, and how soon is a worker that starts on them on time?"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from benchmarks.progress import Progress
from benchmarks.result import Chart, Result, Row, Scale, bars, percentile, shares
from benchmarks.stage import Stage, Usage

__all__ = ["run"]

PATIENCE_SECONDS = 600.0
NAPS = 100
BYTES = "bytes/execution"
HOW = """100,000 executions with an input and a result of 200 bytes, half of them asleep for an hour, half in a backoff
of an hour; then 100 naps that end around a restart of the worker, and ten seconds in which nothing is due."""


@dataclass(frozen=True, slots=True)
class _Full:
    """What so many executions took, when all of them waited: bytes in Redis, bytes of the shard."""

    seconds: float
    stored: int
    row: float
    events: int
    peak: int
    rss: int
    held: int


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A worker that started on them: seconds until it was ready; of each nap when it was due and how late; at rest."""

    ready: float
    naps: list[tuple[float, float]]
    rss: int
    rest: Usage
    rest_seconds: float


def run(scale: Scale, progress: Progress) -> Result:
    """Bring them to rest, then restart the worker."""
    count = scale.of(100_000, 40)
    first_nap = scale.of(40, 3)  # so long that they leave memory
    with Stage() as stage:
        progress.plan(2)
        progress.part(f"{count:,} executions are started and come to rest")
        full = _fill(stage, count)
        progress.part("the worker is restarted")
        ready, naps = _restart(stage, count, first_nap, scale.of(20, 1))
        rss, rest, seconds = stage.host.rss_bytes(), stage.usage(), scale.of(10, 1)
        time.sleep(seconds)
        fresh = _Fresh(ready, naps, rss, stage.usage().since(rest), seconds)
        facts = stage.facts()
    on_time = [late for due, late in naps if due > ready]
    rows = _rows(count, full, fresh, on_time)
    return Result("waiting", (__doc__ or "").strip(), rows, _charts(rows, on_time), facts, how=" ".join(HOW.split()))


def _fill(stage: Stage, count: int) -> _Full:
    memory = stage.usage().redis_memory
    peak = 0
    ids: list[str] = []
    began = time.perf_counter()
    for flow in ("rests", "backs_off"):
        ids += stage.load(flow, note="x" * 188).create(count // 2)
        peak = max(peak, stage.host.rss_bytes())
    peak = max(peak, _all_wait(stage, count))
    seconds = time.perf_counter() - began
    stored = stage.usage().redis_memory - memory
    sample = ids[:: max(1, count // 1000)]
    row = sum([stage.redis.memory_usage(stage.keys.row(each)) or 0 for each in sample]) / len(sample)
    time.sleep(1.0)  # those that came last are still leaving
    rss = stage.host.rss_bytes()
    return _Full(seconds, stored, row, stage.stream_bytes(), peak, rss, stage.host.executions())


def _rows(count: int, full: _Full, fresh: _Fresh, on_time: list[float]) -> list[Row]:
    overdue = [late for due, late in fresh.naps if due <= fresh.ready]
    stored = "Redis memory but for the streams of events, which are capped"
    return [
        Row("shard's resident memory afterwards", full.rss / 2**20, "MiB", "<= 300"),
        Row("executions started and brought to rest", count / full.seconds, "executions/s"),
        Row(stored, (full.stored - full.events) / count, BYTES, "<= 2048"),
        Row("of it the row", full.row, BYTES),
        Row("streams of events", full.events / count, BYTES),
        Row("shard's resident memory while they came, at most", full.peak / 2**20, "MiB", "<= 300"),
        Row("executions in memory afterwards", full.held, "executions"),
        Row("a new worker's resident memory", fresh.rss / 2**20, "MiB", "<= 300"),
        Row("its CPU while nothing is due", fresh.rest.shard_cpu / fresh.rest_seconds, "cores"),
        Row("Redis CPU then", fresh.rest.redis_cpu / fresh.rest_seconds, "cores"),
        Row("Redis commands then", fresh.rest.sent / fresh.rest_seconds, "commands per second"),
        Row("from a worker's start until it is ready", fresh.ready, "s", "< 10"),
        Row("lateness of what fell due before that, at most", max(overdue, default=0.0) / 1000, "s"),
        Row("lateness of what fell due later, p50", percentile(on_time, 0.5) if on_time else 0.0, "ms"),
        Row("lateness of what fell due later, at most", max(on_time, default=0.0), "ms", "<= 50"),
    ]


def _charts(rows: list[Row], on_time: list[float]) -> list[Chart]:
    values = {row.measure: [row.value] for row in rows if row.unit == "MiB"}
    drawn = [bars("memory", "What memory does a shard take beside waiting executions?", "MiB", values, aim=300)]
    if on_time:
        title = "How late do sleepers wake after a restart of the worker?"
        drawn.append(shares("lateness", title, "ms after they were due", {"sleepers": on_time}))
    return drawn


def _restart(stage: Stage, count: int, first_nap: float, spread: float) -> tuple[float, list[tuple[float, float]]]:
    """Stop the worker when the first naps are nearly over and start another one: the seconds until it is ready, and of
    each nap when it was due (seconds after the new worker began) and how late it ended (ms)."""
    began = time.time()
    loads = []
    for number in range(NAPS):
        seconds = first_nap + spread * number / NAPS
        loads.append((stage.load("naps", seconds=seconds), seconds))
    ids = [each for load, _ in loads for each in load.create(1)]
    _all_wait(stage, count + NAPS)
    time.sleep(max(0.0, began + first_nap - 2 - time.time()))
    restarted, ready = stage.restart()
    found = []
    for execution_id, (_, seconds) in zip(ids, loads, strict=True):
        fact = json.loads(stage.ended(execution_id, PATIENCE_SECONDS)[b"r:sleep"])
        due = fact["declared_at"] + seconds * 1000
        found.append((due / 1000 - restarted, fact["ended_at"] - due))
    return ready - restarted, found


def _all_wait(stage: Stage, count: int) -> int:
    """Wait until so many wait, or have waited: naps may end before the last one begins. The most resident memory of
    the shard meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    peak = 0
    while (waiting := stage.count("waiting") + stage.count("completed")) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {waiting} of {count} executions wait after {PATIENCE_SECONDS:g} s")
        peak = max(peak, stage.host.rss_bytes())
        time.sleep(0.5)
    return peak
