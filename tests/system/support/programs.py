"""Servers' processes: who waits for one learns at once that it has ended, and what it said last."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import redis
from system.support.processes import HANG_SECONDS

POLL_SECONDS = 0.02
KEEPS_ALL_WHEN_KILLED = {"appendonly": "yes", "appendfsync": "no"}
"""Settings with which a `kill -9` of a server loses nothing that it has acknowledged: each write goes to the kernel at
once. With the usual `everysec` it is held back while an fsync goes on, for up to 2 s (see `test_held_back`)."""
TAIL_CHARACTERS = 3000


def on_path(name: str, package: str) -> str:
    """The path of a program, which a package of Debian's brings. Skips the test where there is none; in CI that fails
    it."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not on PATH (Debian: apt-get install {package})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Program:
    """A process that runs until it is killed. All that it says goes to `log`."""

    def __init__(self, command: Sequence[str | Path], log: Path, start: Callable[..., Popen[Any]] = Popen) -> None:
        self.log = log
        with log.open("ab") as sink:
            self.process = start([str(word) for word in command], stdout=sink, stderr=sink, cwd=log.parent)

    def require_running(self) -> None:
        """Fail, with its last words, if it has ended."""
        code = self.process.poll()
        assert code is None, f"{self.process.args} ended with {code}:\n{self.last_words}"

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-TAIL_CHARACTERS:]

    def kill(self) -> None:
        """`kill -9`, and wait for its end."""
        self.process.kill()
        self.process.wait()


def wait(check: Callable[[], object], what: str, *programs: Program) -> None:
    """Return as soon as `check` is true; a server that is away is not. These programs must be running meanwhile."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            if check():
                return
        except redis.RedisError:
            pass
        for program in programs:
            program.require_running()
        if time.monotonic() > deadline:
            said = "".join(f"\n{program.last_words}" for program in programs)
            raise AssertionError(f"not within {HANG_SECONDS:g} s: {what}{said}")
        time.sleep(POLL_SECONDS)
