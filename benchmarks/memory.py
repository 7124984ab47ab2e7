"""How much memory does an execution take: while it waits for its next attempt, and after its end?"""

from __future__ import annotations

import time

from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.stage import Stage

__all__ = ["run"]

PATIENCE_SECONDS = 120.0
BATCHES = 3
UNIT = "bytes/execution"
HOW = """three times 4,000 executions with three results of 200 bytes that are in memory, in a backoff of an
hour; then three times 4,000 five-step flows that have ended. Without the streams of events, which are capped."""


def run(scale: Scale, progress: Progress) -> Result:
    """Executions with three results of 200 bytes, all in memory, in a backoff of an hour; then such that have ended."""
    count, warm = scale.of(4000, 30), scale.of(1000, 10)
    shard, waiting, ended = [], [], []
    with Stage(passivate_after=7200, max_in_memory=1_000_000) as stage:
        load = stage.load("stuck")
        progress.plan(2 * BATCHES)
        load.create(warm)
        _all_wait(stage, warm)
        for number in range(1, BATCHES + 1):
            progress.part(f"{count} executions begin to wait")
            rss, stored = stage.host.rss_bytes(), _stored(stage)
            load.create(count)
            _all_wait(stage, warm + number * count)
            shard.append((stage.host.rss_bytes() - rss) / count)
            waiting.append((_stored(stage) - stored) / count)
        held = stage.host.executions() - warm
        if held != BATCHES * count:
            raise RuntimeError(f"expected {BATCHES * count} executions in memory, found {held}")
        flows = stage.load("five")
        flows.run(warm, 200)
        for _ in range(BATCHES):
            progress.part(f"{count} executions end")
            stored = _stored(stage)
            flows.run(count, 200)
            ended.append((_stored(stage) - stored) / count)
        events = sum(stage.redis.xlen(part.events) for part in stage.keys.parts)
        event_bytes = stage.stream_bytes() / events
        facts = stage.facts()
    rows = [
        Row.of("shard's resident memory", UNIT, shard, "<= 6144"),
        Row.of("Redis memory", UNIT, waiting),
        Row.of("Redis memory of one that has ended, of five steps", UNIT, ended),
        Row("Redis memory of an event in a stream", event_bytes, "bytes/event"),
    ]
    values = {"in the shard, waiting": shard, "in Redis, waiting": waiting, "in Redis, ended": ended}
    chart = bars("each", "How much memory does an execution take?", UNIT, values)
    return Result("memory", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))


def _stored(stage: Stage) -> int:
    return stage.usage().redis_memory - stage.stream_bytes()


def _all_wait(stage: Stage, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (waiting := stage.count("waiting")) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {waiting} of {count} executions back off after {PATIENCE_SECONDS:g} s")
        time.sleep(0.1)
