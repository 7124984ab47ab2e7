"""A shard's process as its parent sees it: made by `spawn`, so that it inherits no socket, lock or thread of ours."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import resource_tracker
from typing import Protocol

from stepwell.worker import control as c
from stepwell.worker import spawned
from stepwell.worker.process import DRAINING_SIGNALS, kill_group

__all__ = ["Handle", "SpawnedShard"]


class Handle(Protocol):
    """One process of a shard. Nothing here waits for it, but for `bury`."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def waitables(self) -> tuple[int, ...]:
        """Descriptors that become readable when it says something or ends."""
        ...

    def send(self, message: c.ToShard) -> bool:
        """Tell it something; False where it does not listen."""
        ...

    def receive(self) -> list[c.ToParent]:
        """What it has said since. Raises ValueError where that is nonsense."""
        ...

    def ended(self) -> bool:
        """Whether it has ended."""
        ...

    def kill(self) -> None:
        """SIGKILL, with all that it has started."""
        ...

    def bury(self) -> str:
        """Clear away what is left of a process that has ended; how it ended."""
        ...


class SpawnedShard:
    """A real process. Make it on a thread that lives as long as this process."""

    def __init__(self, index: int) -> None:
        context = multiprocessing.get_context("spawn")
        hears, self._to = context.Pipe(duplex=False)
        self._from, says = context.Pipe(duplex=False)
        # Not a daemonic one, as those may have no processes of their own.
        self._process = context.Process(target=spawned.main, args=(hears, says), name=f"stepwell-shard-{index}")
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, DRAINING_SIGNALS)  # until it can leave them to us
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            hears.close()
            says.close()
        assert self._process.pid is not None, "it has been started"
        self.pid = self._process.pid
        for connection in (self._to, self._from):
            os.set_blocking(connection.fileno(), False)
        self._receiver = c.Receiver(self._from.fileno(), c.to_parent())

    @property
    def waitables(self) -> tuple[int, ...]:
        """Its end, and its words while it can say some."""
        return (self._process.sentinel,) if self._receiver.ended else (self._process.sentinel, self._from.fileno())

    def send(self, message: c.ToShard) -> bool:
        """Tell it something; False where it does not listen."""
        try:
            return c.send(self._to.fileno(), message)
        except OSError:  # it has ended, which its sentinel tells
            return False

    def receive(self) -> list[c.ToParent]:
        """What it has said since. Raises ValueError where that is nonsense."""
        return list(self._receiver.receive())

    def ended(self) -> bool:
        """Whether it has ended. It is left unburied, so that its number stays its own."""
        if not hasattr(os, "waitid"):
            return self._process.exitcode is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """SIGKILL, with all that it has started."""
        kill_group(self.pid)

    def bury(self) -> str:
        """Kill what it has started, reap it, close the pipes; how it ended."""
        kill_group(self.pid)
        self._process.join()
        for connection in (self._to, self._from):
            connection.close()
        code = self._process.exitcode
        self._process.close()
        return _how(code)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
