"""Does a step cost more when its execution has had many steps before?"""

from __future__ import annotations

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage, Usage

__all__ = ["run"]

IN_FLIGHT = 4
LENGTHS = (10, 100, 1000, 5000)
QUICK_LENGTHS = (10, 50)


def run(scale: Scale, progress: Progress) -> Result:
    """Flows of 10 to 5,000 steps, four in flight, as many steps in all at each length."""
    lengths = QUICK_LENGTHS if scale.quick else LENGTHS
    total = scale.of(20_000, 200)
    costs: dict[int, tuple[float, Usage]] = {}
    with Stage() as stage:
        Load(stage.url, stage.keys, stage.scripts, "chain", {"steps": 10}).run(scale.of(200, 4), IN_FLIGHT)
        for steps in lengths:
            load = Load(stage.url, stage.keys, stage.scripts, "chain", {"steps": steps})
            before = stage.usage()
            seconds = load.run(total // steps, IN_FLIGHT)
            costs[steps] = seconds, stage.usage().since(before)
    rows = []
    for steps, (seconds, used) in costs.items():
        rows += [
            Row(f"{steps} steps: shard CPU", used.shard_cpu / total * 1000, "ms/step"),
            Row(f"{steps} steps: Redis CPU", used.redis_cpu / total * 1000, "ms/step"),
            Row(f"{steps} steps: bytes to Redis", used.bytes_in / total, "bytes/step"),
            Row(f"{steps} steps: time", seconds / total * 1000, "ms/step"),
        ]
    # The shortest flows pay most for their start and end, so the second length is what the longest is compared with.
    near, far = lengths[len(lengths) > 2], lengths[-1]
    growth = costs[far][1].shard_cpu / costs[near][1].shard_cpu
    rows.append(Row(f"shard CPU per step, {far} steps / {near} steps", growth, "", "about 1"))
    return Result("history", (__doc__ or "").strip(), rows)
