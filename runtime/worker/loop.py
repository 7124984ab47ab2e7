"""A loop that waits for processes, pipes and other threads at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue

__all__ = ["Loop"]


class Loop:
    """`wait` ends early when somebody calls `post` or `wake`, which any thread and any signal's handler may."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for fd in (self._read, self._write):
            os.set_blocking(fd, False)
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, call: Callable[[], None]) -> None:
        """Let the loop's thread make this call."""
        self._posted.put(call)
        self.wake()

    def wake(self) -> None:
        """Let a wait end."""
        with contextlib.suppress(BlockingIOError):  # full: it will end
            os.write(self._write, b"\0")

    def wait(self, fds: Iterable[int], seconds: float) -> set[int]:
        """Wait until one of them is readable, at most so long; makes the calls that were posted. Which are readable."""
        ready = {fd for fd in wait([*fds, self._read], max(0.0, seconds)) if isinstance(fd, int)}
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                continue
        with contextlib.suppress(Empty):
            while True:
                self._posted.get_nowait()()
        return ready
