"""The benchmarks work. What they measure is never asserted: a quick run's numbers mean nothing."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.capacity import MISSING
from benchmarks.chart import can_draw
from benchmarks.limit import words_of
from benchmarks.publish import CLAIMS, claims, pages
from benchmarks.report import read_folder

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks"]
DRAWS = can_draw()


# Most of what a quick run does is to wait for processes, so several of them together take no longer than one.
TOGETHER = (
    ("throughput", "latency", "recovery", "scrape"),
    ("shards", "retry_accuracy", "waiting", "isolation"),
    ("memory", "history", "listing", "fanout", "sweep"),
)


def test_each_benchmark_belongs_to_a_run_here() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(BENCHMARKS)


@pytest.mark.hang_limit(1200)  # some minutes on a busy machine
def test_quick_runs_measure_everything_draw_it_and_write_it_down(processes: Any, tmp_path: Path) -> None:
    out = tmp_path / "results"
    runs = [processes.start([*COMMAND, *names, "--quick", "--out", out], cwd=ROOT) for names in TOGETHER]
    for names, run in zip(TOGETHER, runs, strict=True):
        printed, said = run.communicate()
        assert run.returncode == 0, said
        assert re.findall(r"^## (\w+)$", printed, re.MULTILINE) == list(names)

    found = {each.name: each for each in read_folder(out)}
    assert found.keys() == BENCHMARKS.keys()
    for name, each in found.items():
        assert each.quick
        assert each.environment.versions["stepwell"]
        assert {"server", "settings", "durability"} <= each.result.facts.keys()
        assert all(math.isfinite(row.value) for row in each.result.rows)
        assert each.result.charts
        for chart in each.result.charts:
            assert all((out / f"{name}-{chart.name}.{kind}").stat().st_size > 0 for kind in ("png", "svg")) or not DRAWS
    assert "A quick run" in (out / "latest.md").read_text()
    # The pages need rows by their names: all of them are there.
    assert MISSING not in pages(list(found.values()))["capacity.md"]
    ours = [claim for claim in CLAIMS if claim.benchmark in found]
    assert sum("docs/benchmarks.md#" in line for line in claims(found)) == len(ours) > 5


def test_an_unknown_benchmark_is_refused_before_anything_runs(processes: Any, tmp_path: Path) -> None:
    process = processes.start([*COMMAND, "speed", "--out", tmp_path / "results"], cwd=ROOT)
    _, said = process.communicate()
    assert process.returncode == 2
    assert "no such benchmark: speed; there are throughput, shards" in said
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'1.5 [0 unix:/s] "GET" "a"', [b"GET", b"a"]),
        (b'1.5 [0 unix:/s] "SET" "a b" ""', [b"SET", b"a b", b""]),
        (rb'1.5 [0 unix:/s] "SET" "{\"n\":\"\\\\n\"}"', [b"SET", b'{"n":"\\\\n"}']),
        (rb'1.5 [0 unix:/s] "SET" "\x00\xff\n\r\t\a\b"', [b"SET", b"\x00\xff\n\r\t\a\b"]),
    ],
)
def test_what_the_server_tells_of_a_command_is_read_as_it_was_sent(line: bytes, words: list[bytes]) -> None:
    assert words_of(line) == words
