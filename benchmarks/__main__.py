"""`python -m benchmarks [names...] [--quick] [--out DIR]`: measure, print a table, write JSON and Markdown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import history, isolation, latency, lateness, memory, recovery, report, shards, throughput, waiting
from benchmarks.result import Result, Scale

BENCHMARKS: dict[str, Callable[[Scale], Result]] = {
    "throughput": throughput.run,
    "latency": latency.run,
    "memory": memory.run,
    "history": history.run,
    "isolation": isolation.run,
    "lateness": lateness.run,
    "waiting": waiting.run,
    "shards": shards.run,
    "recovery": recovery.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 if all of it could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast and how big Stepwell is.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {' '.join(BENCHMARKS)} (all by default)")
    parser.add_argument("--quick", action="store_true", help="show only that it works, in seconds")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), metavar="DIR", help="where results go")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    where = report.machine()
    results = []
    for name in given.names or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results.append(BENCHMARKS[name](Scale(given.quick)))
    report.write(given.out, where, results, given.quick)
    print(report.markdown(where, results, given.quick))
    print(f"written to {given.out}/latest.json and latest.md", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
