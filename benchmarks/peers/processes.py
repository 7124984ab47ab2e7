"""Processes that are started, watched and always ended, with all that they have started themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peers.peer import Skip

__all__ = ["Process", "cpu_seconds", "tree"]

TAIL_BYTES = 1500


class Process:
    """A process in a session of its own; what it says goes to `log`. Leaving the block ends it and its descendants."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path | None = None,
        user: str | None = None,
        piped: bool = False,
        stop: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._log = log
        self._stop = stop
        self._name = Path(command[0]).name
        with log.open("ab") as sink:
            try:
                self.popen = subprocess.Popen(
                    list(command),
                    env={**os.environ, **(environment or {})},
                    cwd=cwd,
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else sink,
                    stderr=sink,
                    text=True,
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
            except OSError as error:
                raise Skip(f"{self._name} can't be started: {error}") from error

    @property
    def pid(self) -> int:
        """The id of the process itself."""
        return self.popen.pid

    def require_running(self) -> None:
        """Raise Skip, with its last words, if it has ended."""
        code = self.popen.poll()
        if code is not None:
            raise Skip(f"{self._name} ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        lines = self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:])

    def kill(self) -> None:
        """SIGKILL it and all of its descendants, at once."""
        pids = tree(self.pid)
        _signal(pids, signal.SIGKILL)
        self.popen.wait()
        _wait_until_gone(pids)

    def end(self, grace: float = 5.0) -> None:
        """Ask it to end; after `grace` seconds kill it. Descendants that stay are killed, too."""
        pids = tree(self.pid)
        try:
            if self.popen.poll() is None:
                self.popen.send_signal(self._stop)
                self.popen.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _signal({*pids, *tree(self.pid)}, signal.SIGKILL)
            self.popen.wait()
            _wait_until_gone(pids)
            self._close_pipes()

    def _close_pipes(self) -> None:
        """Only when all who could write have gone: who still reads holds the pipe until its end."""
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()


def tree(root: int) -> list[int]:
    """A process and its descendants; only the process itself where the system can't tell."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found, rest = [], [root]
    while rest:
        found.append(pid := rest.pop())
        rest += children.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int]) -> float | None:
    """CPU time that these processes and their descendants, also those reaped, have used; None if it can't be told."""
    total = 0.0
    for root in roots:
        if _stat(root) is None:
            return None
        for pid in tree(root):
            fields = _stat(pid)
            if fields is not None:
                total += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> list[str] | None:
    """The fields of a process after its name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _wait_until_gone(pids: Iterable[int]) -> None:
    """Orphans are reaped by whoever adopts them: a zombie counts as gone."""
    deadline = time.monotonic() + 5
    for pid in pids:
        while (fields := _stat(pid)) is not None and fields[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.01)
