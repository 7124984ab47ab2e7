"""How does the throughput follow what is in flight, shards, payloads and durability?"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeVar

from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Chart, Result, Row, Scale, curve
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage
from benchmarks.throughput import IN_FLIGHT, STEPS

__all__ = ["AXES", "run"]

CROWDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
PAYLOADS = (100, 1_000, 10_000, 100_000)
PAYLOAD_IN_FLIGHT = 50
SAFE_CROWDS = (1, 10, 100, 1000)
PROMISES = {
    "relaxed, appendfsync everysec": ("relaxed", "everysec"),
    "relaxed, appendfsync always": ("relaxed", "always"),
    "aof, appendfsync everysec": ("aof", "everysec"),
    "aof, appendfsync always": ("aof", "always"),
}
LIMITS: dict[str, float | str] = {"max_running": 5000, "max_steps": 5000}
HOW = """five-step flows of no-op steps; each point some 0.7 s of them, at least two times what is in flight,
three rounds of all points of an axis in turns. Payloads are the results of the steps, 50 in flight."""
K = TypeVar("K", bound=Hashable)
_Part = tuple[list[Row], list[Chart]]


@dataclass(frozen=True, slots=True)
class _Point:
    """One place of an axis: what runs there."""

    stage: Stage
    load: Load
    in_flight: int


def run(scale: Scale, progress: Progress) -> Result:
    """Each axis on servers of its own."""
    rows: list[Row] = []
    charts: list[Chart] = []
    facts: dict[str, str] = {}
    for name in scale.axes or AXES:
        progress.tell(f"axis {name}")
        more, drawn = AXES[name](scale, progress, facts)
        rows += more
        charts += drawn
    return Result("sweep", (__doc__ or "").strip(), rows, charts, facts, how=" ".join(HOW.split()))


def _in_flight(scale: Scale, progress: Progress, facts: dict[str, str]) -> _Part:
    crowds = (1, 5) if scale.quick else CROWDS
    with Stage("everysec", **LIMITS) as stage:
        load = stage.load("five")
        found = _measured({n: _Point(stage, load, n) for n in crowds}, scale, progress, lambda n: f"{n:,} in flight")
        facts |= stage.facts()
    best = max(found.values(), key=lambda each: median(one.rate for one in each))
    rows = [Row.of("the most steps a second by one shard", "steps/s", [one.rate for one in best])]
    rows += [
        Row.of(f"{n:,} in flight: throughput", "steps/s", [one.rate for one in each]) for n, each in found.items()
    ] + [Row.of(f"{n:,} in flight: a flow takes", "ms", _flow_ms(n, each)) for n, each in found.items()]
    rates = {"one shard": {n: [one.rate for one in each] for n, each in found.items()}}
    times = {"one shard": {n: _flow_ms(n, each) for n, each in found.items()}}
    label = "executions in flight"
    return rows, [
        curve("in-flight", "How does throughput follow what is in flight?", (label, "steps/s"), rates, log="x"),
        curve("flow-time", "How long does a five-step flow take in a crowd?", (label, "ms"), times, log="xy"),
    ]


def _shards(scale: Scale, progress: Progress, facts: dict[str, str]) -> _Part:
    cores = os.cpu_count() or 1
    numbers = (1, 2) if scale.quick else sorted({n for n in (1, 2, 4, 8, 16, 32, cores) if n <= cores})
    with ExitStack() as stack:
        points = {}
        for number in numbers:
            stage = stack.enter_context(Stage(shards=number))
            points[number] = _Point(stage, stage.load("five"), IN_FLIGHT * number)
        found = _measured(points, scale, progress, lambda n: f"{n} shard(s)")
        facts |= {"settings": points[numbers[0]].stage.facts()["settings"]}
    rates = {n: [one.rate for one in each] for n, each in found.items()}
    rows = [Row.of(f"{n} shard{'s' if n > 1 else ''}: throughput", "steps/s", each) for n, each in rates.items()]
    labels = ("shards", "steps/s")
    return rows, [curve("shards", f"How does throughput follow the shards, on {cores} cores?", labels, {"all": rates})]


def _payload(scale: Scale, progress: Progress, facts: dict[str, str]) -> _Part:
    sizes = (100, 10_000) if scale.quick else PAYLOADS
    with Stage() as stage:
        points = {size: _Point(stage, stage.load("five_loads", size=size), PAYLOAD_IN_FLIGHT) for size in sizes}
        found = _measured(points, scale, progress, lambda size: f"{size:,} bytes")
        facts |= stage.facts()
    rates = {size: [one.rate for one in each] for size, each in found.items()}
    costs = {
        "shard": {size: [one.shard_ms * 1000 for one in each] for size, each in found.items()},
        "Redis": {size: [one.redis_ms * 1000 for one in each] for size, each in found.items()},
    }
    rows = [Row.of(f"payload of {size:,} bytes: throughput", "steps/s", each) for size, each in rates.items()]
    for who, line in costs.items():
        rows += [Row.of(f"payload of {size:,} bytes: {who} CPU", "us/step", each) for size, each in line.items()]
    label = "bytes of a step's result"
    return rows, [
        curve("payload", "How does throughput follow the payload?", (label, "steps/s"), {"one shard": rates}, log="x"),
        curve("payload-cost", "What does a payload cost?", (label, "CPU, microseconds/step"), costs, log="xy"),
    ]


def _durability(scale: Scale, progress: Progress, facts: dict[str, str]) -> _Part:
    crowds = (1, 5) if scale.quick else SAFE_CROWDS
    with ExitStack() as stack:
        points: dict[tuple[str, int], _Point] = {}
        for name, (durability, appendfsync) in PROMISES.items():
            stage = stack.enter_context(Stage(appendfsync, durability=durability))
            load = stage.load("five")
            points |= {(name, n): _Point(stage, load, n) for n in crowds}
        found = _measured(points, scale, progress, lambda each: f"{each[0]}, {each[1]:,} in flight")
        facts |= {"durability": "relaxed, and as named"}
    rows = [
        Row.of(f"{name}, {n:,} in flight: throughput", "steps/s", [one.rate for one in each])
        for (name, n), each in found.items()
    ]
    lines = {name: {n: [one.rate for one in found[name, n]] for n in crowds} for name in PROMISES}
    labels = ("executions in flight", "steps/s")
    return rows, [curve("durability", "What does durability cost?", labels, lines, log="xy")]


def _measured(
    points: Mapping[K, _Point], scale: Scale, progress: Progress, called: Callable[[K], str]
) -> dict[K, list[Measured]]:
    """Every point in turns. How many executions make its time full is tried first, which also warms it."""
    rounds, seconds = scale.of(3, 1), 0.02 if scale.quick else 0.7
    counts = {}
    for name, point in points.items():
        trial = min(max(10, 2 * point.in_flight), 2000)
        taken = point.load.run(scale.of(trial, point.in_flight), point.in_flight)
        counts[name] = max(2 * point.in_flight, int(trial * seconds / taken), 2)

    def measured(name: K) -> Measured:
        point = points[name]
        return point.stage.measure(point.load, counts[name], point.in_flight, STEPS)

    progress.plan(rounds * len(points))
    return alternate({name: partial(measured, name) for name in points}, rounds, progress, called)


def _flow_ms(in_flight: int, rounds: Sequence[Measured]) -> list[float]:
    """The mean time from creation to end (Little's law)."""
    return [in_flight * each.seconds / each.executions * 1000 for each in rounds]


AXES: dict[str, Callable[[Scale, Progress, dict[str, str]], _Part]] = {
    "in_flight": _in_flight,
    "shards": _shards,
    "payload": _payload,
    "durability": _durability,
}
