"""`python -m benchmarks.compare A B [--threshold 0.05]`: is B slower than A? Two result files, or two folders of them.

A row is the *same* where the ranges of both overlap: that is noise. Else it is slower or faster by the gap between the
ranges, and beyond the threshold a slower one makes the exit code 1. What was measured once has no range: it counts as
uncertain by half of itself either way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.chart import number_text
from benchmarks.report import Report, read, read_folder
from benchmarks.result import Row

__all__ = ["Comparison", "compare", "compare_rows", "main"]

ONCE = 0.5
THRESHOLD = 0.05
Verdict = Literal["same", "faster", "slower", "SLOWER", "changed", "only in A", "only in B"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row in both. `gap`: how far the ranges are apart, as a share of the nearer end of A's (0: they overlap).

    The verdict is `SLOWER` beyond the threshold, and `changed` where neither more nor less is good. Smaller and bigger
    memory is called faster and slower, too.
    """

    benchmark: str
    measure: str
    unit: str
    before: Row | None
    after: Row | None
    gap: float
    verdict: Verdict

    @property
    def ratio(self) -> float | None:
        """B's value by A's."""
        if self.before is None or self.after is None or not self.before.value:
            return None
        return self.after.value / self.before.value


def compare(a: Sequence[Report], b: Sequence[Report], threshold: float = THRESHOLD) -> list[Comparison]:
    """All rows of the benchmarks that are in both, in A's order; rows of one side only are told as such."""
    found = []
    others = {report.name: report for report in b}
    for report in a:
        if report.name in others:
            before, after = _by_key(report), _by_key(others[report.name])
            for key in [*before, *(key for key in after if key not in before)]:
                found.append(compare_rows(report.name, before.get(key), after.get(key), threshold))
    return found


def compare_rows(benchmark: str, before: Row | None, after: Row | None, threshold: float = THRESHOLD) -> Comparison:
    """One row of both sides; at least one is there."""
    if before is None or after is None:
        row = before or after
        assert row is not None
        return Comparison(
            benchmark, row.measure, row.unit, before, after, 0.0, "only in B" if before is None else "only in A"
        )
    gap = _gap(before, after)
    verdict: Verdict = "same"
    if gap and before.direction == "neither":
        verdict = "changed"
    elif gap:
        worse = (after.value < before.value) == (before.direction == "more")
        verdict = ("SLOWER" if gap > threshold else "slower") if worse else "faster"
    return Comparison(benchmark, before.measure, before.unit, before, after, gap, verdict)


def table(found: Sequence[Comparison]) -> list[str]:
    """The comparison as a Markdown table."""
    lines = ["| benchmark | measure | A | B | B / A | |", "|---|---|---:|---:|---:|---|"]
    for each in found:
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        name = f"{each.measure} ({each.unit})" if each.unit else each.measure
        lines.append(
            f"| {each.benchmark} | {name} | {_shown(each.before)} | {_shown(each.after)} | {ratio} | {each.verdict} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing is slower, 1 if something is, 2 if there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="Is B slower than A?")
    parser.add_argument("a", type=Path, metavar="A", help="a result file, or a folder of them: before")
    parser.add_argument("b", type=Path, metavar="B", help="the same: after")
    parser.add_argument(
        "--threshold", type=float, default=THRESHOLD, help="how much slower is too much, beyond noise (%(default)s)"
    )
    given = parser.parse_args(arguments)
    try:
        a, b = _load(given.a), _load(given.b)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    found = compare(a, b, given.threshold)
    if not found:
        parser.error(f"no benchmark is in both {given.a} and {given.b}")
    for side, reports in (("A", a), ("B", b)):
        dates = sorted(report.environment.date for report in reports)
        for where in sorted({report.environment.machine for report in reports}):
            print(f"{side}: {dates[0]} to {dates[-1]}, {where}")
    for warning in warnings(a, b):
        print(f"beware: {warning}")
    print("", *table(found), "", sep="\n")
    slower = [each for each in found if each.verdict == "SLOWER"]
    print(f"{len(slower)} of {len(found)} are slower by more than {given.threshold:.0%} beyond their noise")
    return 1 if slower else 0


def warnings(a: Sequence[Report], b: Sequence[Report]) -> list[str]:
    """What makes the comparison doubtful."""
    machines = {(each.environment.cpu, each.environment.cores) for each in (*a, *b)}
    found = []
    if len(machines) > 1:
        found.append("the machines differ")
    if any(each.quick for each in (*a, *b)):
        found.append("there are quick runs among them, whose numbers mean nothing")
    busy = sorted({each.name for each in (*a, *b) if each.load_before > each.environment.cores / 2})
    if busy:
        found.append(f"the machine was busy before {', '.join(busy)}")
    return found


def _load(path: Path) -> list[Report]:
    return read_folder(path) if path.is_dir() else [read(path)]


def _by_key(report: Report) -> dict[tuple[str, str], Row]:
    return {(row.measure, row.unit): row for row in report.result.rows}


def _gap(before: Row, after: Row) -> float:
    (low, high), (least, most) = _range(before), _range(after)
    if least > high:
        return (least - high) / abs(high) if high else 1.0
    if most < low:
        return (low - most) / abs(low)
    return 0.0


def _range(row: Row) -> tuple[float, float]:
    if row.low is None or row.high is None:
        return row.value * (1 - ONCE), row.value * (1 + ONCE)
    return row.low, row.high


def _shown(row: Row | None) -> str:
    if row is None:
        return ""
    if row.low is None or row.high is None:
        return number_text(row.value)
    return f"{number_text(row.value)} ({number_text(row.low)} to {number_text(row.high)})"


if __name__ == "__main__":
    sys.exit(main())
