"""Five hundred processes count and are killed at any moment: nothing that was counted is lost, and nothing grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STORM = Path(__file__).parent / "support" / "sheet_storm.py"
needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read in /proc")


@pytest.mark.slow
@pytest.mark.pain(42)
@needs_proc
def test_what_500_killed_processes_had_counted_is_all_there_and_nothing_grows(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(STORM), str(tmp_path), "7", "500"], capture_output=True, text=True, timeout=550
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["wrong"] == [], "each total equals what its process said that it had counted"
    assert seen["went_down"] == [], "also at the moment of a death"
    assert seen["counted"] > 5_000
    assert len(set(seen["series"][1:])) == 1
    assert max(count for count, _ in seen["files"]) <= 4
    assert max(size for _, size in seen["files"]) <= 4 * 65_536
    assert seen["memory"][-1] - seen["memory"][2] < 3 << 20
