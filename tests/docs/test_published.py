"""The numbers in the docs are those of the results that lie beside them, and nobody claims others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import publish, report

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "benchmarks"
SPEED = re.compile(r"[\d,.]+ ?(steps|flows|executions)(/s| a second)|\d+ ?(x|times) (as |faster)|[\d,.]+ ?(ms|MiB)\b")


@pytest.mark.parametrize("page", ["benchmarks.md", "capacity.md", "README.md"])
def test_a_page_says_what_the_results_say(page: str) -> None:
    reports = report.read_folder(KEPT, publish.ORDER)
    folder = ROOT if page == "README.md" else ROOT / "docs"
    text = (folder / page).read_text()
    assert publish.pages(reports, text)[page] == text, "run: python -m benchmarks.publish"


def test_each_picture_of_the_results_is_there() -> None:
    for each in report.read_folder(KEPT):
        for chart in each.result.charts:
            assert (KEPT / f"{report.picture(each, chart)}.svg").is_file()
        assert not each.quick


def test_every_claim_of_speed_in_the_readme_points_to_a_row() -> None:
    claims = [line for line in (ROOT / "README.md").read_text().splitlines() if SPEED.search(line)]
    assert [line for line in claims if "docs/benchmarks.md#" not in line] == []


@pytest.mark.parametrize(
    "line", ["It runs 20,000 steps a second.", "12 x faster", "in 3 ms", "10 times as fast", "9,000 flows/s", "40 MiB"]
)
def test_claims_of_speed_are_seen(line: str) -> None:
    assert SPEED.search(line)
