"""The benchmarks work. What they measure is never asserted: a quick run's numbers mean nothing."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks"]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # The benchmarks are not installed: they are imported from where they lie.
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.limit")


def test_a_quick_run_measures_everything_and_writes_it_down(processes: Any, tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = processes.start([*COMMAND, "--quick", "--out", out], cwd=ROOT)
    printed, said = process.communicate()
    assert process.returncode == 0, said

    reports = [json.loads(file.read_text()) for file in out.glob("*.json")]
    assert len(reports) == 9
    for report in reports:
        assert report["quick"] is True
        assert report["environment"]["versions"]["stepwell"]
        assert all(math.isfinite(row["value"]) for row in report["result"]["rows"])
        assert f"## {report['result']['name']}\n" in printed
    assert "A quick run" in (out / "latest.md").read_text()


def test_an_unknown_benchmark_is_refused_before_anything_runs(processes: Any, tmp_path: Path) -> None:
    process = processes.start([*COMMAND, "speed", "--out", tmp_path / "results"], cwd=ROOT)
    _, said = process.communicate()
    assert process.returncode == 2
    assert "no such benchmark: speed; there are throughput, latency" in said
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
def test_what_the_server_tells_of_a_command_is_read_as_it_was_sent(
    limit: ModuleType, line: bytes, words: list[bytes]
) -> None:
    assert limit.words_of(line) == words
