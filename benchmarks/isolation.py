"""What does a step in a process of its own cost, and how many a second does one shard run?"""

from __future__ import annotations

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage

__all__ = ["run"]

STEPS = 5
IN_FLIGHT = 50


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows as in `throughput`, their steps in the four processes of one shard."""
    alone, many = scale.of(200, 3), scale.of(1500, 5)
    with Stage() as stage:
        load = Load(stage.url, stage.keys, stage.scripts, "five_apart", {})
        first = load.run(1, 1)
        load.run(scale.of(200, 5), IN_FLIGHT)
        one = load.run(alone, 1)
        before = stage.usage()
        seconds = load.run(many, IN_FLIGHT)
        used = stage.usage().since(before)
    rows = [
        Row("first flow, a process is started", first * 1000, "ms"),
        Row("one flow alone", one / alone / STEPS * 1000, "ms/step"),
        Row("throughput", many * STEPS / seconds, "steps/s"),
        Row("shard CPU, without its step processes", used.shard_cpu / many / STEPS * 1000, "ms/step"),
    ]
    return Result("isolation", (__doc__ or "").strip(), rows)
