"""How many steps a second do two shards run, next to one?"""

from __future__ import annotations

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage, Usage

__all__ = ["run"]

STEPS = 5
IN_FLIGHT = 200
_Round = tuple[float, Usage]


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows as in `throughput`, by a worker of one process and by one of two, in turns."""
    flows = scale.of(4000, 20)
    with Stage(shards=1) as one, Stage(shards=2) as two:
        loads = [
            (stage, Load(stage.url, stage.keys, stage.scripts, "five", {}), n) for n, stage in ((1, one), (2, two))
        ]
        for _, load, shards in loads:
            load.run(scale.of(1000, 20), IN_FLIGHT * shards)
        rounds = [[_round(stage, load, flows, shards) for stage, load, shards in loads] for _ in range(scale.of(5, 1))]
        memory = [stage.host.rss_bytes() for stage, _, _ in loads]
    singles, doubles = ([pair[place] for pair in rounds] for place in (0, 1))
    steps = flows * STEPS
    rows = [
        Row.of("one shard", "steps/s", [steps / seconds for seconds, _ in singles]),
        Row.of("two shards", "steps/s", [steps / seconds for seconds, _ in doubles], ">= 15000"),
        Row.of("two shards / one", "", [single[0] / double[0] for single, double in rounds], ">= 1.5"),
        Row.of("one shard: CPU", "ms/step", [used.shard_cpu / steps * 1000 for _, used in singles]),
        Row.of("two shards: CPU of both", "ms/step", [used.shard_cpu / steps * 1000 for _, used in doubles]),
        Row.of("two shards: Redis CPU", "ms/step", [used.redis_cpu / steps * 1000 for _, used in doubles]),
        Row("one shard and its parent: resident memory", memory[0] / 2**20, "MiB"),
        Row("two shards and their parent: resident memory", memory[1] / 2**20, "MiB"),
    ]
    return Result("shards", (__doc__ or "").strip(), rows)


def _round(stage: Stage, load: Load, flows: int, shards: int) -> _Round:
    before = stage.usage()
    seconds = load.run(flows, IN_FLIGHT * shards)
    return seconds, stage.usage().since(before)
