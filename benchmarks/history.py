"""Does a step cost more when its execution has had many steps before, or when many executions are stored?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.progress import Progress
from benchmarks.result import Chart, Result, Row, Scale, curve
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage

__all__ = ["run"]

IN_FLIGHT = 4
LENGTHS = (10, 100, 1000, 5000)
QUICK_LENGTHS = (10, 50)
STORED = (1_000, 10_000, 100_000)
QUICK_STORED = (20, 40)
FILL_IN_FLIGHT = 1000
CROWD = 200
HOW = """flows of 10 to 5,000 steps, four in flight, 20,000 steps in all at each length, three rounds in turns.
Then five-step flows, 200 in flight, where 1,000 to 100,000 ended executions are stored, in turns with a server that
stores few."""
_Costs = Mapping[int, Sequence[Measured]]


def run(scale: Scale, progress: Progress) -> Result:
    """Over the length of one execution's history, then over the number of executions that are stored."""
    with Stage() as stage:
        lengths, row_bytes = _by_length(scale, progress, stage)
        facts = stage.facts()
    few, many = _by_number(scale, progress)
    rows = _length_rows(lengths, row_bytes)
    last = max(many)
    rows += [
        Row.of(f"{number:,} executions stored: shard CPU", "ms/step", [each.shard_ms for each in found])
        for number, found in many.items()
    ]
    rows += [
        Row.of(f"{number:,} executions stored: Redis CPU", "ms/step", [each.redis_ms for each in found])
        for number, found in many.items()
    ]
    growths = [full.shard_ms / empty.shard_ms for full, empty in zip(many[last], few[last], strict=True)]
    rows.insert(1, Row.of(f"shard CPU per step, {last:,} executions stored / few", "", growths, "about 1"))
    growths = [full.redis_ms / empty.redis_ms for full, empty in zip(many[last], few[last], strict=True)]
    rows.insert(2, Row.of(f"Redis CPU per step, {last:,} executions stored / few", "", growths, "about 1"))
    charts = [
        _chart("length", "Does a step cost more after many steps?", "steps of the execution", lengths),
        _chart("number", "Does a step cost more when many executions are stored?", "executions stored", many),
    ]
    return Result("history", (__doc__ or "").strip(), rows, charts, facts, how=" ".join(HOW.split()))


def _by_length(scale: Scale, progress: Progress, stage: Stage) -> tuple[_Costs, dict[int, float]]:
    lengths, total, rounds = QUICK_LENGTHS if scale.quick else LENGTHS, scale.of(20_000, 200), scale.of(3, 1)
    stage.load("chain", steps=10).run(scale.of(200, 4), IN_FLIGHT)
    loads = {steps: stage.load("chain", steps=steps) for steps in lengths}

    def measured(steps: int) -> Measured:
        return stage.measure(loads[steps], total // steps, IN_FLIGHT, steps)

    progress.plan(rounds * len(lengths))
    found = alternate(
        {steps: partial(measured, steps) for steps in lengths},
        rounds,
        progress,
        lambda steps: f"flows of {steps:,} steps",
    )
    rows = {steps: stage.keys.row(load.latest) for steps, load in loads.items()}
    return found, {steps: (stage.redis.memory_usage(row, samples=0) or 0) / steps for steps, row in rows.items()}


def _by_number(scale: Scale, progress: Progress) -> tuple[_Costs, _Costs]:
    flows, rounds = scale.of(1500, 20), scale.of(3, 1)
    numbers = QUICK_STORED if scale.quick else STORED
    few: dict[int, list[Measured]] = {}
    many: dict[int, list[Measured]] = {}
    with Stage() as empty, Stage() as full:
        fill, loads = full.load("chain", steps=1), {stage: stage.load("five") for stage in (empty, full)}
        for load in loads.values():
            load.run(scale.of(500, 10), CROWD)
        for number in numbers:
            stored = full.count("completed")
            progress.plan(2 * rounds)
            progress.tell(f"filling the store: {number:,} executions")
            fill.run(max(1, number - stored), FILL_IN_FLIGHT)
            found = alternate(
                {
                    "few": lambda: empty.measure(loads[empty], flows, CROWD, 5),
                    "many": lambda: full.measure(loads[full], flows, CROWD, 5),
                },
                rounds,
                progress,
                partial(_called, number),
            )
            few[number], many[number] = found["few"], found["many"]
    return few, many


def _called(number: int, name: str) -> str:
    return f"{name if name == 'few' else f'{number:,}'} executions stored"


def _length_rows(costs: _Costs, row_bytes: Mapping[int, float]) -> list[Row]:
    # The shortest flows pay most for their start and end, so the second length is what the longest is compared with.
    lengths = list(costs)
    near, far = lengths[len(lengths) > 2], lengths[-1]
    growths = [later.shard_ms / sooner.shard_ms for later, sooner in zip(costs[far], costs[near], strict=True)]
    rows = [Row.of(f"shard CPU per step, {far:,} steps / {near:,} steps", "", growths, "about 1")]
    for steps, found in costs.items():
        rows += [
            Row.of(f"{steps:,} steps: shard CPU", "ms/step", [each.shard_ms for each in found]),
            Row.of(f"{steps:,} steps: Redis CPU", "ms/step", [each.redis_ms for each in found]),
            Row.of(
                f"{steps:,} steps: bytes to Redis", "bytes/step", [each.used.bytes_in / each.steps for each in found]
            ),
            Row.of(f"{steps:,} steps: time", "ms/step", [each.seconds / each.steps * 1000 for each in found]),
            Row(f"{steps:,} steps: the row's memory in Redis", row_bytes[steps], "bytes/step"),
        ]
    return rows


def _chart(name: str, title: str, label: str, costs: _Costs) -> Chart:
    lines = {
        "shard": {x: [each.shard_ms * 1000 for each in found] for x, found in costs.items()},
        "Redis": {x: [each.redis_ms * 1000 for each in found] for x, found in costs.items()},
    }
    return curve(name, title, (label, "CPU, microseconds/step"), lines, log="x")
