"""One step process as its shard holds it: started by exec (never a bare fork), asked, killed, reaped.

Its end is an event: its pidfd on Linux, a waiting thread elsewhere. Whatever is left of its process group is killed
before it is reaped, while its number can't be anybody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Final

import msgspec

from stepwell.actors.processes import wire
from stepwell.core.redact import declared_secrets
from stepwell.metrics.logs import LogSetup
from stepwell.metrics.tracing import TraceSetup

RETIRE_SECONDS: Final = 2.0
_NO_SUCH_GROUP: Final = (ProcessLookupError, PermissionError)  # macOS says the latter where only a zombie is left
LAST_WORDS_SECONDS: Final = 0.3  # what it said before it died is read first
# The import path is ours, so that the same modules are found; nothing of the working directory shadows them before.
BOOT: Final = """
import json, os, sys
fd = int(sys.argv[1])
size, said = int(os.read(fd, 8)), b""
while len(said) < size:
    said += os.read(fd, size - len(said)) or sys.exit()
sys.path[:] = json.loads(said)
sys.argv[:] = ["stepwell-step"]
from stepwell.actors.processes.child import main
main(fd)
"""


class ProcessGone(Exception):
    """The process has ended, and is reaped; `code` as in `subprocess` (negative: a signal)."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(self.how)

    @property
    def how(self) -> str:
        """What became of it, for people."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = "unknown"
        hint = "; out of memory?" if self.code == -signal.SIGKILL else ""
        return f"was killed by signal {-self.code} ({name}{hint})"


class StepProcess:
    """Belongs to the event loop that started it.

    `known` holds the numbers of the steps it has loaded; `attempts` and `idle_since` are its pool's.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid = popen.pid
        self.known: set[int] = set()
        self.attempts = 0
        self.idle_since = 0.0
        self._popen = popen
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._asked = False
        self.gone: asyncio.Future[int] = self._loop.create_future()
        """Its exit code, once it is reaped."""
        self._watch()

    @classmethod
    async def start(cls, log: LogSetup | None, traces: TraceSetup | None = None) -> StepProcess:
        """Start one; call it from a thread that lives as long as the process may (Linux ends it with that thread).

        Raises:
            OSError: the system gives no process.
        """
        ours, its = socket.socketpair()
        with its:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                popen = subprocess.Popen(
                    [sys.executable, *_flags(), "-c", BOOT, str(its.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[its.fileno()],
                    process_group=0,
                )
            except BaseException:
                writer.transport.abort()
                raise
        path = json.dumps([entry or os.getcwd() for entry in sys.path]).encode()
        hello = wire.Hello(os.getpid(), log, traces, tuple(declared_secrets()))
        writer.write(b"%8d" % len(path) + path + wire.frame(hello))
        return cls(popen, reader, writer)

    async def ask(self, question: wire.Load | wire.Run) -> wire.Answer:
        """Its answer. A caller that gives up waiting must kill it.

        Raises:
            ProcessGone: it has ended instead.
        """
        self._asked = True
        try:
            self._writer.write(wire.frame(question))
            await self._writer.drain()
            size = wire.size_of(await self._reader.readexactly(wire.HEAD_BYTES))
            return wire.answer(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            await asyncio.wait([self.gone], timeout=LAST_WORDS_SECONDS)  # it dies: by what is told by its own code
            await self.kill()
            raise ProcessGone(self.gone.result()) from error
        finally:
            self._asked = False

    async def kill(self) -> None:
        """SIGKILL to it and all that it has started in its group; returns when it is reaped."""
        if not self.gone.done():
            with contextlib.suppress(*_NO_SUCH_GROUP):
                os.killpg(self.pid, signal.SIGKILL)
        await asyncio.shield(self.gone)
        self._writer.transport.abort()

    async def retire(self) -> None:
        """Let it end in good order; after two seconds it is killed."""
        if not self.gone.done():
            self._writer.write(wire.frame(wire.Retire()))
        await asyncio.wait([self.gone], timeout=RETIRE_SECONDS)
        await self.kill()

    def _watch(self) -> None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old kernel, or no descriptor left
            threading.Thread(target=self._wait, name="stepwell-reaper", daemon=True).start()
        else:
            self._loop.add_reader(descriptor, self._ended, descriptor)

    def _wait(self) -> None:
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is over
            self._loop.call_soon_threadsafe(self._reaped)

    def _ended(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        with contextlib.suppress(*_NO_SUCH_GROUP):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self._reaped()

    def _reaped(self) -> None:
        self.gone.set_result(self._popen.returncode)
        if self._asked:
            # A process that it has started and that left its group may hold the other end of the stream.
            self._loop.call_later(LAST_WORDS_SECONDS, self._writer.transport.abort)
        else:
            self._writer.transport.abort()


def _flags() -> list[str]:
    """The flags of this interpreter that change what code does."""
    return ["-P", *["-O"] * sys.flags.optimize, *(f"-W{option}" for option in sys.warnoptions)]
