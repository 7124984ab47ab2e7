"""Runs a command and ends all that it leaves running, which is a failure of its own (exit code 99).

Step processes, servers and workers live in sessions of their own, and whoever started them may be killed: orphans come
to this process, whatever their folder, group or session (Linux; elsewhere the command just runs).

Usage: python tests/reaper.py COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

LEFT_RUNNING = 99
# A server that is being stopped, or a process whose pipe has just closed, needs a moment.
GRACE_SECONDS = float(os.environ.get("REAPER_GRACE_SECONDS", "30"))
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """The command's exit code, 128 + the signal that ended it, or 99 if all went well but something was left."""
    restored = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them, and the command would inherit that
    return reap(lambda: os.posix_spawnp(command[0], command, os.environ, setsigdef=restored))


def reap(start: Callable[[], int]) -> int:
    """The same for a child that `start` starts, answering its pid."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell has put into the background ignores it
    try:
        child = start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the command too
        code = _bury_until_the_end_of(child)
        left = _wait_for_the_last(GRACE_SECONDS) if code == 0 else list(_descendants(os.getpid()))
        for pid in left:
            print(f"left running, killed: {_told(pid)}", file=sys.stderr)
    finally:
        _kill_all()
    return code or (LEFT_RUNNING if left else 0)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _bury_until_the_end_of(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _wait_for_the_last(seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := _living()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _kill_all() -> None:
    """Until none is there: one that is killed bequeaths us its children."""
    while left := _living():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _living() -> list[int]:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    return list(_descendants(os.getpid()))


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in children.read_text().split()]
        except OSError:  # it has ended meanwhile
            continue
        for child in found:
            yield child
            yield from _descendants(child)


def _told(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"{pid} {words or '(ended, not buried)'} in {os.readlink(f'/proc/{pid}/cwd')}"
    except OSError:
        return f"{pid} (gone meanwhile)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
