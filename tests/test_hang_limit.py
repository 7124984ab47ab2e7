"""A test that hangs is failed; one that a busy machine keeps from working is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import conftest
import pytest

TEST = """
import time
import pytest

@pytest.mark.hang_limit(0.2)
def test_it():
    {}
"""


@pytest.mark.slow
@pytest.mark.parametrize("body", ["time.sleep(60)", "while True: pass"])
def test_who_waits_or_works_past_the_limit_is_failed(tmp_path: Path, body: str) -> None:
    shutil.copy(conftest.__file__, tmp_path)
    (tmp_path / "test_it.py").write_text(TEST.format(body))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = hang_limit(seconds)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "AssertionError: still busy after " in done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    ("worked", "elapsed", "starved"),
    [
        (10.0, 61.0, True),  # a sixth of a core is all that it got
        (0.5, 60.0, False),  # it waits
        (60.0, 60.0, False),  # it had its time
        (60.0, 120.0, False),
        (50.0, 120.0, True),
        (50.0, 300.0, False),  # nothing is waited for without end
    ],
)
def test_who_is_kept_from_working_gets_more_time_within_a_bound(worked: float, elapsed: float, starved: bool) -> None:
    assert conftest.is_starved(worked, elapsed, 60.0) is starved
