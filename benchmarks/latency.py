"""How long does a five-step flow take, from `start` to its result, when nothing else runs?"""

from __future__ import annotations

from benchmarks.pace import one_at_a_time
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile
from benchmarks.stage import Stage

__all__ = ["run"]


def run(scale: Scale, progress: Progress) -> Result:
    """By a client in another process, and by one in the worker's own."""
    count = scale.of(1000, 10)
    with Stage() as stage:
        one_at_a_time(stage.url, scale.of(100, 3))
        before = stage.usage()
        apart = one_at_a_time(stage.url, count)
        used = stage.usage().since(before)
        stage.host.latencies(scale.of(100, 3))
        within = stage.host.latencies(count)
    rows = [
        Row("client in another process, p50", percentile(apart, 0.5), "ms", "<= 4"),
        Row("client in another process, p99", percentile(apart, 0.99), "ms", "<= 15"),
        Row("client in the worker's process, p50", percentile(within, 0.5), "ms"),
        Row("client in the worker's process, p99", percentile(within, 0.99), "ms"),
        Row("shard CPU (client in another process)", used.shard_cpu / count * 1000, "ms/flow"),
        Row("Redis CPU (client in another process)", used.redis_cpu / count * 1000, "ms/flow"),
    ]
    return Result("latency", (__doc__ or "").strip(), rows)
