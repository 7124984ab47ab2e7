"""A measurement with its circumstances, as files: `<name>.json`, its pictures, and an index of a folder.

report = measure(run, "throughput", Scale(), expected=30)   # runs it: load before and after, seconds, environment
write(Path("bench-results"), report)                        # throughput.json, throughput-*.png and .svg
write_index(Path("bench-results"))                          # latest.md: all that lies in the folder
report = read(Path("bench-results/throughput.json"))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.chart import can_draw, draw, number_text
from benchmarks.environment import Environment, environment, load
from benchmarks.progress import Progress
from benchmarks.result import Chart, Result, Row, Scale, Table

if TYPE_CHECKING:
    from stepwell.cli.bars import Bar

__all__ = [
    "FORMAT",
    "Report",
    "amount",
    "markdown",
    "measure",
    "overview",
    "picture",
    "read",
    "read_folder",
    "section",
    "subtitle",
    "table",
    "write",
    "write_index",
]

FORMAT = 1
QUICK = "A quick run: it shows that everything works, its numbers mean nothing."
Run = Callable[[Scale, Progress], Result]


@dataclass(frozen=True, slots=True)
class Report:
    """What lies in a JSON file. Load averages are those of a minute; `seconds` is how long the measuring took."""

    format: int
    quick: bool
    environment: Environment
    load_before: float
    load_after: float
    seconds: float
    result: Result

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.result.name

    def row(self, measure: str, unit: str | None = None) -> Row:
        """The row of that measure; of that unit, where a measure has several.

        Raises:
            KeyError: there is none.
        """
        for row in self.result.rows:
            if row.measure == measure and unit in (None, row.unit):
                return row
        raise KeyError(f"{self.name} has no row {measure!r}" + (f" in {unit}" if unit is not None else ""))


def measure(run: Run, name: str, scale: Scale, expected: float = 0.0, bar: Bar | None = None) -> Report:
    """Run a benchmark; `expected`: the seconds that it takes on a machine like ours; `bar`: shows its parts."""
    where, before, began = environment(), load(), time.monotonic()
    result = run(scale, Progress(name, 0.0 if scale.quick else expected, bar=bar))
    return Report(FORMAT, scale.quick, where, before, load(), round(time.monotonic() - began, 1), result)


def write(folder: Path, report: Report) -> list[Path]:
    """Write the JSON file and draw the pictures, if matplotlib is there; the files' paths."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{report.name}.json"
    _put(file, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    files = [file]
    if can_draw():
        for chart in report.result.charts:
            files += draw(chart, subtitle(report), folder / picture(report, chart))
    return files


def read(file: Path) -> Report:
    """Read such a file.

    Raises:
        ValueError: it is none, or of another format.
    """
    try:
        report = msgspec.json.decode(file.read_bytes(), type=Report)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} is not the result of a benchmark: {error}") from error
    if report.format != FORMAT:
        raise ValueError(f"{file} has format {report.format}, this version reads {FORMAT}: measure again")
    return report


def read_folder(folder: Path, order: Sequence[str] = ()) -> list[Report]:
    """All results of a folder; those of `order` first, then the others by name."""
    found = {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
    return [found.pop(name) for name in order if name in found] + list(found.values())


def write_index(folder: Path, order: Sequence[str] = ()) -> Path:
    """Write `latest.md`, which shows all results of the folder."""
    file = folder / "latest.md"
    _put(file, (markdown(read_folder(folder, order), "png" if can_draw() else "") + "\n").encode())
    return file


def _put(file: Path, data: bytes) -> None:
    """Write a whole file at once: somebody may read it just now."""
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(data)
    fresh.replace(file)


def picture(report: Report, chart: Chart) -> str:
    """The name of a picture's files, without suffix."""
    return f"{report.name}-{chart.name}"


def subtitle(report: Report) -> str:
    """Date and machine, and a warning."""
    return ("A QUICK RUN, NO MEASUREMENT: " if report.quick else "") + report.environment.short


def markdown(reports: Sequence[Report], pictures: str = "", folder: str = "") -> str:
    """An overview and a section for each; `pictures`: the suffix of those to show, `folder`: where they lie."""
    lines = ["# Benchmarks", ""]
    if any(report.quick for report in reports):
        lines += [QUICK, ""]
    lines += overview(reports)
    for report in reports:
        lines += ["", *section(report, pictures, folder)]
    return "\n".join(lines)


def overview(reports: Sequence[Report]) -> list[str]:
    """A line for each: its question, and its first row (or rows) as the answer."""
    lines = ["| benchmark | question | answer |", "|---|---|---|"]
    for report in reports:
        answer = "; ".join(f"{row.measure}: {amount(row)}" for row in report.result.rows[: report.result.answers])
        lines.append(f"| [{report.name}](#{report.name}) | {report.result.question} | {answer} |")
    return lines


def section(report: Report, pictures: str = "", folder: str = "") -> list[str]:
    """One result as a person reads it: question, circumstances, pictures, table, notes."""
    where = report.environment
    facts = [f"{name}: {fact}" for name, fact in report.result.facts.items()]
    versions = ", ".join(f"{name} {number}" for name, number in where.versions.items())
    lines = [f"## {report.name}", "", report.result.question, ""]
    if report.result.how:
        lines += [f"How: {report.result.how}", ""]
    lines += [
        f"{where.short}; {where.system}; {versions}; {'; '.join(facts)}; "
        f"load before {report.load_before:g}, after {report.load_after:g}; took {report.seconds:.0f} s.",
        "",
    ]
    if pictures:
        for chart in report.result.charts:
            lines += [f"![{chart.title}]({folder}{picture(report, chart)}.{pictures})", ""]
    if report.result.tables:
        lines += [line for each in report.result.tables for line in (*cells(each), "")][:-1]
    else:
        lines += table(report.result.rows)
    if report.result.notes:
        lines += ["", *(f"* {note}" for note in report.result.notes)]
    return lines


def table(rows: Sequence[Row]) -> list[str]:
    """Rows as a Markdown table."""
    lines = ["| measure | value | range | aim |", "|---|---:|---:|---|"]
    for row in rows:
        between = "" if row.low is None or row.high is None else f"{number_text(row.low)} to {number_text(row.high)}"
        lines.append(f"| {row.measure} | {amount(row)} | {between} | {row.aim} |")
    return lines


def cells(shown: Table) -> list[str]:
    """A table of text as Markdown, under its title."""
    lines = [f"**{shown.title}**", "", f"| {' | '.join(shown.columns)} |", "|---" * len(shown.columns) + "|"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in shown.lines]


def amount(row: Row) -> str:
    """Value and unit."""
    return f"{number_text(row.value)} {row.unit}".rstrip()
