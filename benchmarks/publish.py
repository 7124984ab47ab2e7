"""`python -m benchmarks.publish [RESULTS] [DOCS]`: write results into the docs, so that both say the same.

It copies the JSON files to DOCS/benchmarks/, draws the pictures beside them, and writes DOCS/benchmarks.md,
DOCS/capacity.md and the table of the README from what lies there. Without new results it only writes the pages again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from benchmarks import capacity, report
from benchmarks.__main__ import BENCHMARKS
from benchmarks.chart import can_draw, draw
from benchmarks.peers.verdict import FASTEST_FLOWS, FASTEST_QUEUE
from benchmarks.report import Report
from benchmarks.result import Chart, Row

__all__ = ["CLAIMS", "main", "pages"]

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).resolve().parent / "pages"
ORDER = (*BENCHMARKS, "peers")
BEGIN = "<!-- written by python -m benchmarks.publish -->"
END = "<!-- end -->"


@dataclass(frozen=True, slots=True)
class Claim:
    """A line of the README: what is claimed, and the row that says so."""

    text: str
    benchmark: str
    measure: str
    unit: str


CLAIMS = (
    Claim("steps a second, one shard", "throughput", "throughput", "steps/s"),
    Claim("steps a second, two shards", "shards", "two shards", "steps/s"),
    Claim("throughput, against the fastest other durable flows here", "peers", FASTEST_FLOWS, "times"),
    Claim("against redflow, which also keeps durable flows on Redis", "peers", "throughput / redflow", "times"),
    Claim("against DBOS, which keeps them on Postgres", "peers", "throughput / dbos", "times"),
    Claim("against the fastest queue here", "peers", FASTEST_QUEUE, "times"),
    Claim("share of what a bare loop reaches on the same Redis", "throughput", "throughput / limit", ""),
    Claim(
        "a five-step flow, alone, from `start` to result (median)", "latency", "client in another process, p50", "ms"
    ),
    Claim(
        "how late retries begin, with 10,000 backing off at once (p99)",
        "retry_accuracy",
        "lateness beside nothing else, p99",
        "ms",
    ),
    Claim(
        "memory of a shard while it brings 100,000 executions to rest, at most",
        "waiting",
        "shard's resident memory while they came, at most",
        "MiB",
    ),
    Claim(
        "a shard is killed: its executions run again within",
        "recovery",
        "killed shard: until the last one runs again",
        "s",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all pages could be written."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description="Write results into the docs.")
    parser.add_argument("results", type=Path, nargs="?", metavar="RESULTS", help="a folder of results")
    parser.add_argument("docs", type=Path, nargs="?", default=ROOT / "docs", metavar="DOCS", help="the docs' folder")
    parser.add_argument("--quick", action="store_true", help="take quick runs, too (to try it)")
    given = parser.parse_args(arguments)
    kept = given.docs / "benchmarks"
    kept.mkdir(parents=True, exist_ok=True)
    try:
        new = report.read_folder(given.results) if given.results else []
        refused = [each.name for each in new if each.quick and not given.quick]
        if refused:
            parser.error(f"these are quick runs, whose numbers mean nothing: {', '.join(refused)}")
        for each in new:
            shutil.copyfile(given.results / f"{each.name}.json", kept / f"{each.name}.json")
        reports = report.read_folder(kept, ORDER)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if can_draw():
        _draw(kept, reports)
    readme = given.docs.parent / "README.md"
    for file, text in pages(reports, readme.read_text(encoding="utf-8") if readme.exists() else "").items():
        (given.docs.parent / "README.md" if file == "README.md" else given.docs / file).write_text(
            text, encoding="utf-8"
        )
    return 0


def pages(reports: Sequence[Report], readme: str = "") -> dict[str, str]:
    """The text of each page, by its name in the docs (README.md is the one above them)."""
    by_name = {each.name: each for each in reports}
    sections = "\n\n".join("\n".join(report.section(each, "svg", "benchmarks/")) for each in reports)
    overview = "\n".join(report.overview(reports)) if reports else "Nothing has been published yet."
    where = reports[0].environment.machine if reports else "no machine yet"
    found = {
        "benchmarks.md": _filled("benchmarks.md", {"overview": overview, "sections": sections}),
        "capacity.md": _filled("capacity.md", {**capacity.numbers(by_name), "where": where}),
    }
    if BEGIN in readme:
        found["README.md"] = _with_claims(readme, by_name)
    return found


def claims(by_name: Mapping[str, Report]) -> list[str]:
    """The README's table; empty while nothing was published."""
    lines = []
    for claim in CLAIMS:
        row = _row(by_name.get(claim.benchmark), claim)
        if row is not None:
            link = f"[{claim.benchmark}](docs/benchmarks.md#{claim.benchmark})"
            lines.append(f"| {claim.text} | {report.amount(row)} | {link} |")
    if not lines:
        return []
    newest = max((by_name[claim.benchmark] for claim in CLAIMS if claim.benchmark in by_name), key=_date)
    return [
        *_picture_of_peers(by_name),
        "| | | row |",
        "|---|---:|---|",
        *lines,
        "",
        f"Measured {newest.environment.short}.",
    ]


def _picture_of_peers(by_name: Mapping[str, Report]) -> list[str]:
    charts = by_name["peers"].result.charts if "peers" in by_name else ()
    shown = [chart for chart in charts if chart.name == "throughput"]
    return [line for chart in shown for line in (f"![{chart.title}](docs/benchmarks/peers-{chart.name}.svg)", "")]


def _row(found: Report | None, claim: Claim) -> Row | None:
    """The row of a claim; None where that was not measured (which other systems were depends on the machine).

    Raises:
        KeyError: a benchmark of ours has no such row any more.
    """
    if found is None:
        return None
    if claim.benchmark == "peers" and all(row.measure != claim.measure for row in found.result.rows):
        return None
    return found.row(claim.measure, claim.unit)


def _date(each: Report) -> str:
    return each.environment.date


def _with_claims(readme: str, by_name: Mapping[str, Report]) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *claims(by_name), END]) + after


def _filled(page: str, values: Mapping[str, str]) -> str:
    text = Template((TEMPLATES / page).read_text(encoding="utf-8")).substitute(values)
    return text.rstrip("\n") + "\n"


def _draw(folder: Path, reports: Sequence[Report]) -> None:
    drawn = {file for each in reports for chart in each.result.charts for file in _pictures(folder, each, chart)}
    for old in set(folder.glob("*.svg")) - drawn:
        old.unlink()


def _pictures(folder: Path, each: Report, chart: Chart) -> list[Path]:
    return draw(chart, report.subtitle(each), folder / report.picture(each, chart), ["svg"])


if __name__ == "__main__":
    sys.exit(main())
