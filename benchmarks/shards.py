"""How many steps a second do two shards run, next to one?"""

from __future__ import annotations

from functools import partial

from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage
from benchmarks.throughput import IN_FLIGHT, STEPS

__all__ = ["run"]

HOW = """the flows of `throughput`, 200 in flight for each shard, by a worker of one process and by one of two,
five rounds in turns."""


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows as in `throughput`, by a worker of one process and by one of two, in turns."""
    flows, rounds = scale.of(4000, 20), scale.of(5, 1)
    with Stage(shards=1) as one, Stage(shards=2) as two:
        stages = {1: one, 2: two}
        loads = {shards: stage.load("five") for shards, stage in stages.items()}
        for shards, load in loads.items():
            load.run(scale.of(1000, 20), IN_FLIGHT * shards)

        def measured(shards: int) -> Measured:
            return stages[shards].measure(loads[shards], flows, IN_FLIGHT * shards, STEPS)

        progress.plan(2 * rounds)
        found = alternate({n: partial(measured, n) for n in stages}, rounds, progress, lambda n: f"{n} shard(s)")
        memory = {shards: stage.host.rss_bytes() / 2**20 for shards, stage in stages.items()}
        links = {shards: stage.redis.info("clients")["connected_clients"] for shards, stage in stages.items()}
        facts = two.facts()
    ratios = [double.rate / single.rate for single, double in zip(found[1], found[2], strict=True)]
    rates = {n: [each.rate for each in found[n]] for n in found}
    rows = [
        Row.of("two shards", "steps/s", rates[2], ">= 15000"),
        Row.of("one shard", "steps/s", rates[1]),
        Row.of("two shards / one", "", ratios, ">= 1.5"),
        Row.of("one shard: CPU", "ms/step", [each.shard_ms for each in found[1]]),
        Row.of("two shards: CPU of both", "ms/step", [each.shard_ms for each in found[2]]),
        Row.of("two shards: Redis CPU", "ms/step", [each.redis_ms for each in found[2]]),
        Row("one shard and its parent: resident memory", memory[1], "MiB"),
        Row("two shards and their parent: resident memory", memory[2], "MiB"),
        Row("connections to Redis that a second shard adds", links[2] - links[1], "connections"),
    ]
    values = {"one shard": rates[1], "two shards": rates[2]}
    chart = bars("rate", "How many steps a second do two shards run?", "steps/s", values)
    return Result("shards", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))
