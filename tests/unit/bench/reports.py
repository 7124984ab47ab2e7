"""Results of benchmarks that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.environment import Environment
from benchmarks.report import FORMAT, Report
from benchmarks.result import Chart, Result, Row


def environment(cpu: str = "Any CPU") -> Environment:
    """A machine."""
    return Environment(
        "2026-01-02 03:04 UTC", cpu, 2, 8 << 30, "Linux 6", "CPython 3.11", {"stepwell": "1"}, "abc", False
    )


def report(
    name: str, rows: Sequence[Row], charts: Sequence[Chart] = (), quick: bool = False, cpu: str = "Any CPU"
) -> Report:
    """What a benchmark of that name could have found."""
    result = Result(name, f"How is {name}?", rows, charts, {"server": "Valkey 9", "durability": "relaxed"}, ["a note"])
    return Report(FORMAT, quick, environment(cpu), 0.1, 0.2, 3.0, result)
