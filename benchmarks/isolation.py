"""What does a step in a process of its own cost, and how many a second does one shard run?"""

from __future__ import annotations

from functools import partial

from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage

__all__ = ["run"]

STEPS = 5
IN_FLIGHT = 50
HOW = """1,500 flows of five no-op steps, 50 in flight, their steps in the four processes of one shard, and as
many with async steps of the shard itself; three rounds in turns."""


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows as in `throughput`, their steps in the four processes of one shard."""
    alone, many, rounds = scale.of(100, 3), scale.of(1500, 5), scale.of(3, 1)
    with Stage() as stage:
        apart, within = stage.load("five_apart"), stage.load("five")
        first = apart.run(1, 1)
        apart.run(scale.of(200, 5), IN_FLIGHT)
        within.run(scale.of(200, 5), IN_FLIGHT)
        progress.plan(3 * rounds)

        def measured(name: str) -> Measured:
            if name == "alone":
                return stage.measure(apart, alone, 1, STEPS)
            return stage.measure(apart if name == "apart" else within, many, IN_FLIGHT, STEPS)

        found = alternate({name: partial(measured, name) for name in ("apart", "within", "alone")}, rounds, progress)
        facts = stage.facts()
    rates = {name: [each.rate for each in found[name]] for name in ("apart", "within")}
    rows = [
        Row.of("throughput", "steps/s", rates["apart"]),
        Row.of("the same with async steps of the shard itself", "steps/s", rates["within"]),
        Row.of("one flow alone", "ms/step", [each.seconds / each.steps * 1000 for each in found["alone"]]),
        Row.of("shard CPU, without its step processes", "ms/step", [each.shard_ms for each in found["apart"]]),
        Row("first flow, a process is started", first * 1000, "ms"),
    ]
    values = {"steps in processes of their own": rates["apart"], "async steps of the shard": rates["within"]}
    chart = bars("rate", "What does a process of its own cost a step?", "steps/s", values)
    return Result("isolation", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))
