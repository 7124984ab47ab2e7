"""What does a branch of a `gather` cost, from one branch to a thousand?"""

from __future__ import annotations

from functools import partial

from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, curve
from benchmarks.rounds import alternate
from benchmarks.stage import Measured, Stage

__all__ = ["run"]

WIDTHS = (1, 10, 100, 1000)
QUICK_WIDTHS = (1, 10)
MANY_IN_FLIGHT = 50
HOW = """executions of one gather of 1 to 1,000 no-op async steps, one execution at a time and 50 at a time,
three rounds in turns; some 4,000 branches a round."""


def run(scale: Scale, progress: Progress) -> Result:
    """One gather alone, and many gathers of one worker."""
    branches, rounds = scale.of(4000, 20), scale.of(3, 1)
    widths = QUICK_WIDTHS if scale.quick else WIDTHS
    with Stage() as stage:
        loads = {width: stage.load("fans", branches=width) for width in widths}
        for load in loads.values():
            load.run(2, 2)

        def measured(width: int, in_flight: int) -> Measured:
            # One alone takes milliseconds, so a quarter of the narrow ones has to do.
            executions = branches // width if width > 1 or in_flight > 1 else branches // 8
            return stage.measure(loads[width], max(2, executions), in_flight, width)

        variants = [(width, in_flight) for in_flight in (1, MANY_IN_FLIGHT) for width in widths]
        progress.plan(len(variants) * rounds)
        found = alternate(
            {variant: partial(measured, *variant) for variant in variants},
            rounds,
            progress,
            lambda variant: f"{variant[0]} branches, {variant[1]} in flight",
        )
        facts = stage.facts()
    widest = max(widths)
    growths = [
        wide.shard_ms / ten.shard_ms
        for wide, ten in zip(found[widest, MANY_IN_FLIGHT], found[10, MANY_IN_FLIGHT], strict=True)
    ]
    rows = [Row.of(f"shard CPU per branch, {widest:,} branches / 10", "", growths, "about 1")]
    for width, in_flight in variants:
        crowd = "one gather alone" if in_flight == 1 else f"{in_flight} at once"
        which = f"{width:,} {'branch' if width == 1 else 'branches'}, {crowd}"
        each = found[width, in_flight]
        rows += [
            Row.of(f"{which}: time", "ms/branch", [one.seconds / one.steps * 1000 for one in each]),
            Row.of(f"{which}: shard CPU", "ms/branch", [one.shard_ms for one in each]),
            Row.of(f"{which}: Redis CPU", "ms/branch", [one.redis_ms for one in each]),
        ]
    lines = {
        f"{who}, {in_flight} at a time": {
            width: [(one.shard_ms if who == "shard" else one.redis_ms) * 1000 for one in found[width, in_flight]]
            for width in widths
        }
        for who in ("shard", "Redis")
        for in_flight in (1, MANY_IN_FLIGHT)
    }
    labels = ("branches of the gather", "CPU, microseconds/branch")
    chart = curve("branch", "What does a branch of a gather cost?", labels, lines, log="xy")
    return Result("fanout", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))
