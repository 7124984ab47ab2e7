"""Processes of a test, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HANG_SECONDS = 150.0
"""Only a hang takes so long, also where many others use the processors and the disk."""


def eventually(check: Callable[[], Any], what: str, seconds: float = HANG_SECONDS) -> Any:
    """Call `check` until it answers something true, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process is there and not merely unburied."""
    if Path("/proc/self/stat").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(shown.strip()) and not shown.strip().startswith("Z")


def ends(pid: int) -> None:
    """Wait until a process does nothing any more: its locks and sockets are free a little earlier."""
    eventually(lambda: not lives(pid), f"process {pid} has ended")


def kill(pid: int) -> None:
    """SIGKILL, and wait until that has been done."""
    os.kill(pid, signal.SIGKILL)
    ends(pid)


class Processes:
    """Starts processes in groups of their own; none outlives its test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[str]] = []

    def start(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start a command in the test's directory; its stdout and stderr are text pipes unless told otherwise."""
        options = {
            "cwd": self.directory,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
            **options,
        }
        process = subprocess.Popen([str(part) for part in command], **options)
        self._started.append(process)
        return process

    def python(self, code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start this Python on a piece of code."""
        return self.start([sys.executable, "-c", code, *arguments], **options)

    def end(self) -> None:
        """Kill each group that is left and close the pipes."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            with process:
                process.wait()
