"""How much memory does an execution take that waits for its next attempt?"""

from __future__ import annotations

import time

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage

__all__ = ["run"]

PATIENCE_SECONDS = 120.0


def run(scale: Scale, progress: Progress) -> Result:
    """Executions with three results of 200 bytes, all in memory, all in a backoff of an hour."""
    count = scale.of(10_000, 50)
    with Stage(passivate_after=7200, max_in_memory=1_000_000) as stage:
        load = Load(stage.url, stage.keys, stage.scripts, "stuck", {})
        warm = scale.of(1000, 10)
        load.create(warm)
        _all_wait(stage, warm)
        rss, memory = stage.host.rss_bytes(), stage.usage().redis_memory
        load.create(count)
        _all_wait(stage, warm + count)
        grown = stage.host.rss_bytes() - rss
        stored = stage.usage().redis_memory - memory
        held = stage.host.executions() - warm
    if held != count:
        raise RuntimeError(f"expected {count} executions in memory, found {held}")
    rows = [
        Row("shard's resident memory", grown / count, "bytes/execution", "<= 6144"),
        Row("Redis memory", stored / count, "bytes/execution"),
    ]
    return Result("memory", (__doc__ or "").strip(), rows)


def _all_wait(stage: Stage, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (waiting := stage.count("waiting")) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {waiting} of {count} executions back off after {PATIENCE_SECONDS:g} s")
        time.sleep(0.1)
