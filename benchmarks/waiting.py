"""What do 100,000 executions cost that wait for long, and how soon is a worker that starts on them on time?"""

from __future__ import annotations

import json
import time

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile
from benchmarks.stage import Stage

__all__ = ["run"]

PATIENCE_SECONDS = 600.0
NAPS = 100
BYTES = "bytes/execution"
NAP_SPREAD_SECONDS = 20.0


def run(scale: Scale, progress: Progress) -> Result:
    """Executions with an input and a result of 200 bytes, half of them asleep for an hour, half in a backoff."""
    count = scale.of(100_000, 40)
    first_nap = scale.of(40, 3)  # so long that they leave memory
    with Stage() as stage:
        memory = stage.usage().redis_memory
        peak = 0
        ids: list[str] = []
        began = time.perf_counter()
        for flow in ("rests", "backs_off"):
            ids += Load(stage.url, stage.keys, stage.scripts, flow, {"note": "x" * 188}).create(count // 2)
            peak = max(peak, stage.host.rss_bytes())
        peak = max(peak, _all_wait(stage, count))
        began = time.perf_counter() - began
        stored = stage.usage().redis_memory - memory
        sample = ids[:: max(1, count // 1000)]
        row = sum([stage.redis.memory_usage(stage.keys.row(each)) or 0 for each in sample]) / len(sample)
        events = sum([stage.redis.memory_usage(part.events, samples=0) or 0 for part in stage.keys.parts])
        time.sleep(1.0)  # those that came last are still leaving
        rss, held = stage.host.rss_bytes(), stage.host.executions()
        seconds, naps = _restart(stage, count, first_nap)
        fresh = stage.host.rss_bytes()
        idle = stage.usage()
        time.sleep(scale.of(10, 1))
        idle = stage.usage().since(idle)
    on_time = [late for due, late in naps if due > seconds]
    overdue = [late for due, late in naps if due <= seconds]
    rows = [
        Row("executions started and brought to rest", count / began, "executions/s"),
        Row(
            "Redis memory but for the streams of events, which are capped", (stored - events) / count, BYTES, "<= 2048"
        ),
        Row("of it the row", row, BYTES),
        Row("streams of events", events / count, BYTES),
        Row("shard's resident memory while they came, at most", peak / 2**20, "MiB"),
        Row("shard's resident memory afterwards", rss / 2**20, "MiB", "<= 300"),
        Row("executions in memory afterwards", held, "executions"),
        Row("a new worker's resident memory", fresh / 2**20, "MiB", "<= 300"),
        Row("its CPU while nothing is due", idle.shard_cpu / scale.of(10, 1), "cores"),
        Row("Redis CPU then", idle.redis_cpu / scale.of(10, 1), "cores"),
        Row("from a worker's start until it is ready", seconds, "s", "< 10"),
        Row("lateness of what fell due before that, at most", max(overdue, default=0.0) / 1000, "s"),
        Row("lateness of what fell due later, p50", percentile(on_time, 0.5) if on_time else 0.0, "ms"),
        Row("lateness of what fell due later, at most", max(on_time, default=0.0), "ms", "<= 50"),
    ]
    return Result("waiting", (__doc__ or "").strip(), rows)


def _restart(stage: Stage, count: int, first_nap: float) -> tuple[float, list[tuple[float, float]]]:
    """Stop the worker when the first naps are nearly over and start another one: the seconds until it is ready, and of
    each nap when it was due (seconds after the new worker began) and how late it ended (ms)."""
    began = time.time()
    loads = []
    for number in range(NAPS):
        seconds = first_nap + NAP_SPREAD_SECONDS * number / NAPS
        loads.append((Load(stage.url, stage.keys, stage.scripts, "naps", {"seconds": seconds}), seconds))
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
    """Wait until so many wait; the most resident memory of the shard meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    peak = 0
    while (waiting := stage.count("waiting")) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {waiting} of {count} executions wait after {PATIENCE_SECONDS:g} s")
        peak = max(peak, stage.host.rss_bytes())
        time.sleep(0.5)
    return peak
