"""How many steps a second does one shard run, what does a step cost, and how near is that to the limit?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.limit import Recording, Replay
from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale
from benchmarks.stage import Stage, Usage

__all__ = ["run"]

STEPS = 5
IN_FLIGHT = 200
BATCHES = (16, 64, 256)


@dataclass(frozen=True, slots=True)
class _Round:
    """What the product did, and right after it the bare loop."""

    steps: int
    seconds: float
    used: Usage
    limit: float  # steps/s with the batch that was best
    limit_cpu: float  # the server's CPU seconds a step there

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows of no-op async steps, 200 in flight, AOF everysec, one shard; in turns with the limit."""
    recorded = scale.of(1000, 20)
    with Stage() as stage, stage.spare_server() as spare:
        load = Load(stage.url, stage.keys, stage.scripts, "five", {})
        load.run(scale.of(1000, 20), IN_FLIGHT)
        with Recording(stage.url) as recording:
            load.run(recorded, IN_FLIGHT)
        replay = Replay.of(recording.commands, spare, stage.keys, stage.scripts)
        rounds = [_round(stage, load, scale.of(4000, 20), replay, recorded) for _ in range(scale.of(7, 1))]
    return Result("throughput", (__doc__ or "").strip(), _rows(rounds))


def _round(stage: Stage, load: Load, flows: int, replay: Replay, recorded: int) -> _Round:
    before = stage.usage()
    seconds = load.run(flows, IN_FLIGHT)
    used = stage.usage().since(before)
    best, cpu = min(replay.run(batch) for batch in BATCHES)
    return _Round(flows * STEPS, seconds, used, recorded * STEPS / best, cpu / recorded / STEPS)


def _rows(rounds: Sequence[_Round]) -> list[Row]:
    def row(measure: str, unit: str, value: Callable[[_Round], float], aim: str = "") -> Row:
        return Row.of(measure, unit, [value(one) for one in rounds], aim)

    return [
        row("throughput", "steps/s", lambda one: one.rate, ">= 8000"),
        row("shard CPU", "ms/step", lambda one: one.used.shard_cpu / one.steps * 1000),
        row("shard CPU", "cores", lambda one: one.used.shard_cpu / one.seconds),
        row("Redis CPU", "ms/step", lambda one: one.used.redis_cpu / one.steps * 1000),
        row("Redis commands", "per step", lambda one: one.used.sent / one.steps),
        row("script calls among them", "per step", lambda one: one.used.scripts / one.steps),
        row("commands inside scripts", "per step", lambda one: one.used.inside / one.steps),
        row("bytes to Redis", "bytes/step", lambda one: one.used.bytes_in / one.steps),
        row("limit: a bare loop with the same commands", "steps/s", lambda one: one.limit),
        row("Redis CPU at the limit", "ms/step", lambda one: one.limit_cpu * 1000),
        row("throughput / limit", "", lambda one: one.rate / one.limit, ">= 0.3"),
    ]
