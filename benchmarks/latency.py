"""How long does a five-step flow take, from `start` to its result, when nothing else runs?"""

from __future__ import annotations

from benchmarks.pace import one_at_a_time
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile, shares
from benchmarks.rounds import alternate
from benchmarks.stage import Stage

__all__ = ["run"]

APART = "client in another process"
WITHIN = "client in the worker's process"
HOW = """five rounds of 300 flows one at a time, by a client in another process and by one in the worker's own,
in turns; a row is the median of the rounds."""


def run(scale: Scale, progress: Progress) -> Result:
    """By a client in another process, and by one in the worker's own."""
    count, rounds = scale.of(300, 10), scale.of(5, 1)
    with Stage() as stage:
        used = []

        def apart(flows: int = count) -> list[float]:
            before = stage.usage()
            found = one_at_a_time(stage.url, flows)
            used.append(stage.usage().since(before))
            return found

        progress.plan(2 * rounds)
        apart(scale.of(100, 3))
        stage.host.latencies(scale.of(100, 3))
        used.clear()
        taken = alternate({APART: apart, WITHIN: lambda: stage.host.latencies(count)}, rounds, progress)
        facts = stage.facts()
    rows = [
        Row.of(f"{who}, p{share:.0%}".rstrip("%"), "ms", [percentile(each, share) for each in taken[who]], aim)
        for who, share, aim in ((APART, 0.5, "<= 2"), (APART, 0.99, "<= 15"), (WITHIN, 0.5, "<= 2"), (WITHIN, 0.99, ""))
    ]
    rows += [
        Row.of(f"shard CPU ({APART})", "ms/flow", [each.shard_cpu / count * 1000 for each in used]),
        Row.of(f"Redis CPU ({APART})", "ms/flow", [each.redis_cpu / count * 1000 for each in used]),
    ]
    everything = {who: [ms for each in taken[who] for ms in each] for who in taken}
    chart = shares("all", "How long does a five-step flow take, alone?", "ms", everything, aim=2)
    return Result("latency", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))
