"""How many steps a second does one shard run, what does a step cost, and how near is that to the limit?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.limit import Recording, Replay
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage

__all__ = ["IN_FLIGHT", "STEPS", "run"]

STEPS = 5
IN_FLIGHT = 200
BATCHES = (16, 64, 256)
HOW = """4,000 flows of five no-op async steps, 200 in flight, AOF everysec, one shard; seven rounds in turns
with the limit, medians. The limit is the bare pipelined loop: the commands that 1,000 of these flows really sent,
sent again to an empty server with the same settings in batches of 16, 64 and 256, of which the best counts; every
reply is checked."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What the product did, and beside it the bare loop."""

    ours: Measured
    limit: float  # steps/s with the batch that was best
    limit_cpu: float  # the server's CPU seconds a step there


def run(scale: Scale, progress: Progress) -> Result:
    """Five-step flows of no-op async steps, in turns with the limit."""
    recorded, flows, rounds = scale.of(1000, 20), scale.of(4000, 20), scale.of(7, 1)
    with Stage() as stage, stage.spare_server() as spare:
        load = stage.load("five")
        progress.tell("warming up, and taking down what the flows send")
        load.run(scale.of(1000, 20), IN_FLIGHT)
        with Recording(stage.url) as recording:
            load.run(recorded, IN_FLIGHT)
        replay = Replay.of(recording.commands, spare, stage.keys, stage.scripts)
        ours: list[Measured] = []
        limits: list[tuple[float, float]] = []
        progress.plan(2 * rounds)
        alternate(
            {
                "the shard": lambda: ours.append(stage.measure(load, flows, IN_FLIGHT, STEPS)),
                "the limit": lambda: limits.append(min(replay.run(batch) for batch in BATCHES)),
            },
            rounds,
            progress,
        )
        facts = stage.facts()
    found = [
        _Round(one, recorded * STEPS / best, cpu / recorded / STEPS)
        for one, (best, cpu) in zip(ours, limits, strict=True)
    ]
    charts = [
        bars(
            "rate",
            "How many steps a second does one shard run?",
            "steps/s",
            {"one shard": [one.ours.rate for one in found], "the limit: a bare loop": [one.limit for one in found]},
        ),
        bars(
            "cost",
            "What CPU does a step cost?",
            "microseconds/step",
            {
                "shard": [one.ours.shard_ms * 1000 for one in found],
                "Redis": [one.ours.redis_ms * 1000 for one in found],
                "Redis at the limit": [one.limit_cpu * 1e6 for one in found],
            },
        ),
    ]
    return Result("throughput", (__doc__ or "").strip(), _rows(found), charts, facts, how=" ".join(HOW.split()))


def _rows(rounds: Sequence[_Round]) -> list[Row]:
    def row(measure: str, unit: str, value: Callable[[_Round], float], aim: str = "") -> Row:
        return Row.of(measure, unit, [value(one) for one in rounds], aim)

    return [
        row("throughput", "steps/s", lambda one: one.ours.rate, ">= 8000"),
        row("shard CPU", "ms/step", lambda one: one.ours.shard_ms),
        row("shard CPU", "cores", lambda one: one.ours.used.shard_cpu / one.ours.seconds),
        row("Redis CPU", "ms/step", lambda one: one.ours.redis_ms),
        row("Redis commands", "per step", lambda one: one.ours.used.sent / one.ours.steps),
        row("script calls among them", "per step", lambda one: one.ours.used.scripts / one.ours.steps),
        row("commands inside scripts", "per step", lambda one: one.ours.used.inside / one.ours.steps),
        row("bytes to Redis", "bytes/step", lambda one: one.ours.used.bytes_in / one.ours.steps),
        row("limit: a bare loop with the same commands", "steps/s", lambda one: one.limit),
        row("Redis CPU at the limit", "ms/step", lambda one: one.limit_cpu * 1000),
        row("throughput / limit", "", lambda one: one.ours.rate / one.limit, ">= 0.5"),
    ]
