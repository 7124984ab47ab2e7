"""How many steps a second does one shard run, what does a step cost, and how near is that to the limit?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.limit import Recording, Replay
from benchmarks.load import Load
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage, Usage

__all__ = ["run"]

STEPS = 5
IN_FLIGHT = 200
BATCHES = (16, 64, 256)


@dataclass(frozen=True, slots=True)
class _Sample:
    seconds: float
    steps: int
    used: Usage

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


def run(scale: Scale) -> Result:
    """Five-step flows of no-op async steps, 200 in flight, AOF everysec, one shard; then the limit."""
    with Stage() as stage:
        load = Load(stage.url, stage.keys, stage.scripts, "five", {})
        load.run(scale.of(1000, 20), IN_FLIGHT)
        samples = [_sample(stage, load, scale.of(4000, 20)) for _ in range(scale.of(5, 1))]
        recorded = scale.of(2000, 20)
        with Recording(stage.url) as recording:
            load.run(recorded, IN_FLIGHT)
        stage.host.close()
        replay = Replay.of(recording.commands, stage.url, stage.keys, stage.scripts)
        limit, batch, limit_cpu = _limit(stage, replay, recorded * STEPS, scale.of(3, 1))
    return Result("throughput", (__doc__ or "").strip(), _rows(samples, limit, batch, limit_cpu))


def _sample(stage: Stage, load: Load, flows: int) -> _Sample:
    before = stage.usage()
    seconds = load.run(flows, IN_FLIGHT)
    return _Sample(seconds, flows * STEPS, stage.usage().since(before))


def _limit(stage: Stage, replay: Replay, steps: int, repeats: int) -> tuple[float, int, float]:
    """Best steps/s of the bare loop, the batch that reached it, and the server's CPU seconds a step there."""
    best = (0.0, 0, 0.0)
    for _ in range(repeats):
        for batch in BATCHES:
            seconds, cpu = replay.run(batch, stage.redis_cpu)
            best = max(best, (steps / seconds, batch, cpu / steps))
    return best


def _rows(samples: list[_Sample], limit: float, batch: int, limit_cpu: float) -> list[Row]:
    rates = [sample.rate for sample in samples]
    rate = statistics.median(rates)
    steps = sum(sample.steps for sample in samples)

    def per_step(name: str) -> float:
        total: float = sum(getattr(sample.used, name) for sample in samples)
        return total / steps

    cpu = [sample.used.shard_cpu / sample.steps * 1000 for sample in samples]
    return [
        Row("throughput", rate, "steps/s", ">= 8000", min(rates), max(rates)),
        Row("shard CPU", statistics.median(cpu), "ms/step", "", min(cpu), max(cpu)),
        Row("shard's share of a core", per_step("shard_cpu") * rate, "cores"),
        Row("Redis CPU", per_step("redis_cpu") * 1000, "ms/step"),
        Row("Redis commands", per_step("sent"), "per step"),
        Row("script calls among them", per_step("scripts"), "per step"),
        Row("commands inside scripts", per_step("inside"), "per step"),
        Row("bytes to Redis", per_step("bytes_in"), "bytes/step"),
        Row(f"limit: bare loop, batches of {batch}", limit, "steps/s"),
        Row("Redis CPU at the limit", limit_cpu * 1000, "ms/step"),
        Row("throughput / limit", rate / limit, "", ">= 0.3"),
    ]
