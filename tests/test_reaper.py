"""The suites' reaper: a command's exit code is kept, and what it leaves running is told and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import reaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to another than init")

ORPHAN = "setsid sh -c 'echo $$ >>pids; sleep 1000 & echo $! >>pids; wait' & while ! [ -s pids ]; do :; done"


def start(folder: Path, script: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, reaper.__file__, "sh", "-c", script]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def living(folder: Path) -> list[str]:
    return [pid for pid in (folder / "pids").read_text().split() if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 128 + signal.SIGKILL)])
def test_the_exit_code_is_that_of_the_command(tmp_path: Path, script: str, code: int) -> None:
    process = start(tmp_path, script)
    assert process.communicate() == (None, "")
    assert process.returncode == code


@pytest.mark.parametrize("code", [0, 4])
def test_what_is_left_in_a_session_of_its_own_is_told_and_ended(tmp_path: Path, code: int) -> None:
    process = start(tmp_path, f"{ORPHAN}; exit {code}", REAPER_GRACE_SECONDS="0")
    told = process.communicate()[1]
    assert "left running, killed: " in told
    assert "echo $$ >>pids" in told
    assert process.returncode == (code or reaper.LEFT_RUNNING)
    assert living(tmp_path) == []


def test_what_ends_by_itself_in_a_moment_is_not_left(tmp_path: Path) -> None:
    process = start(tmp_path, "setsid sleep 0.05 &")
    assert process.communicate() == (None, "")
    assert process.returncode == 0


def test_commands_hear_the_terminal_also_from_the_background(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(tmp_path, "kill -INT $$; exit 0")
    finally:
        signal.signal(signal.SIGINT, before)
    process.communicate()
    assert process.returncode == 128 + signal.SIGINT


def test_a_reaper_that_is_ended_ends_all(tmp_path: Path) -> None:
    process = start(tmp_path, f"{ORPHAN}; echo ready >&2; wait")
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert living(tmp_path) == []
