"""`python -m benchmarks [names...] [--quick] [--out DIR]`: measure, draw, and write down as JSON and Markdown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    fanout,
    history,
    isolation,
    latency,
    listing,
    memory,
    recovery,
    report,
    retry_accuracy,
    scrape,
    shards,
    sweep,
    throughput,
    waiting,
)
from benchmarks.chart import can_draw
from benchmarks.progress import say
from benchmarks.result import Scale
from stepwell.cli.bars import Bars, bars

__all__ = ["BENCHMARKS", "Benchmark", "main"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is run, and how many seconds that takes on two cores."""

    run: report.Run
    seconds: float


BENCHMARKS = {
    "throughput": Benchmark(throughput.run, 25),
    "shards": Benchmark(shards.run, 30),
    "latency": Benchmark(latency.run, 15),
    "retry_accuracy": Benchmark(retry_accuracy.run, 100),
    "waiting": Benchmark(waiting.run, 120),
    "memory": Benchmark(memory.run, 20),
    "history": Benchmark(history.run, 80),
    "listing": Benchmark(listing.run, 120),
    "fanout": Benchmark(fanout.run, 30),
    "isolation": Benchmark(isolation.run, 15),
    "sweep": Benchmark(sweep.run, 150),
    "recovery": Benchmark(recovery.run, 50),
    "scrape": Benchmark(scrape.run, 45),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 if all of it could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast and how big Stepwell is.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {' '.join(BENCHMARKS)} (all by default)")
    parser.add_argument("--quick", action="store_true", help="show only that it works, in seconds")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), metavar="DIR", help="where results go")
    parser.add_argument("--axis", action="append", choices=sweep.AXES, help="of the sweep: only this one (repeatable)")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    names = given.names or list(BENCHMARKS)
    # Workers start as they do where Stepwell is installed: pip has compiled what they load.
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    if not can_draw():
        say("no pictures will be drawn: that needs matplotlib (pip install 'stepwell[bench]')")
    scale = Scale(given.quick, given.axis or ())
    # A thread that draws would be measured, too.
    with bars(ticking=False) as shown:
        _measure_all(names, scale, given.out, shown)
    index = report.write_index(given.out, list(BENCHMARKS))
    say(f"written to {given.out}: a JSON file and pictures for each, and {index.name}")
    return 0


def _measure_all(names: Sequence[str], scale: Scale, out: Path, shown: Bars | None) -> None:
    """One after the other. The bars: all of them, by the seconds that each should take, and the parts of this one."""
    seconds = [BENCHMARKS[name].seconds for name in names]
    whole = shown.bar("all", sum(seconds), counts=False) if shown is not None else None
    current = shown.bar("", 1) if shown is not None else None
    for number, name in enumerate(names):
        say(
            f"== {name} ({number + 1} of {len(names)})"
            + ("" if scale.quick else f"; about {sum(seconds[number:]):.0f} s for all")
        )
        if whole is not None and current is not None:
            whole.reach(sum(seconds[:number]), f"{number + 1} of {len(names)}")
            current.again(name, 1)
        done = report.measure(BENCHMARKS[name].run, name, scale, seconds[number], current)
        report.write(out, done)
        text = "\n".join([*report.section(done), ""])
        if shown is None:
            print(text, flush=True)
        else:
            shown.answers.print(text, soft_wrap=True, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
