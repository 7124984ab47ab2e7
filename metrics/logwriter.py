"""Writes log lines without ever keeping the one who logs waiting for whoever reads them.

A line is written at once where it fits: so nothing of what was logged before a crash is missing. Where the pipe is full
(a reader that hangs, a slow disk behind it) lines wait in memory, up to a limit, and a thread writes them; beyond the
limit they are left out, and a line says how many.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

__all__ = ["BACKLOG_BYTES_MAX", "PatientHandler"]

BACKLOG_BYTES_MAX: Final = 4 * 1024 * 1024
# A pipe that can be written to takes so much without waiting (POSIX: at least 512).
AT_ONCE_MAX: Final = select.PIPE_BUF
FLUSH_SECONDS: Final = 2.0


class PatientHandler(logging.Handler):
    """Writes to a stream as logging's own handler does, but never waits for it. `flush` waits, for two seconds at most.

    `left_out(count)` makes the line that tells how many could not be kept.
    """

    def __init__(self, stream: TextIO, left_out: Callable[[int], str]) -> None:
        super().__init__()
        self._stream = stream
        self._left_out = left_out
        self._number = _number_of(stream)
        waits = self._number is not None and not _is_file(self._number)
        self._own = _own_way_to(self._number) if self._number is not None and waits else None
        self._poll = _poll_of(self._number) if self._number is not None and waits else None
        self._backlog: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        self._ready = threading.Condition(threading.Lock())
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, or keep it until it can be written."""
        try:
            line = self.format(record) + "\n"
            if self._number is None:
                self._stream.write(line)
                self._stream.flush()
            else:
                self._write(self._number, line.encode(self._stream.encoding or "utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all is written, or for two seconds: who ends a process waits no longer for a reader that hangs."""
        if self._number is None:
            self._stream.flush()
            return
        until = time.monotonic() + FLUSH_SECONDS
        with self._ready:
            while self._writer is not None and (left := until - time.monotonic()) > 0:
                self._ready.wait(left)

    def close(self) -> None:
        """Let go of the pipe: its reader sees its end once the stream is closed, too."""
        with self._ready:
            own, self._own = self._own, None
        if own is not None:
            os.close(own)
        super().close()

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        with self._ready:
            return len(self._backlog)

    def _write(self, number: int, data: bytes) -> None:
        with self._ready:
            if self._writer is None and self._at_once(number, data):
                return
            if self._bytes + len(data) > BACKLOG_BYTES_MAX:
                self._lost += 1
                return
            self._backlog.append(data)
            self._bytes += len(data)
            if self._writer is None:
                self._writer = threading.Thread(target=self._drain, args=(number,), name="stepwell-log", daemon=True)
                self._writer.start()

    def _at_once(self, number: int, data: bytes) -> bool:
        """Write it, if that can be done without waiting."""
        if self._poll is not None:
            if len(data) > AT_ONCE_MAX or not any(event & select.POLLOUT for _, event in self._poll.poll(0)):
                return False
            if self._own is not None:
                return _write_whole(self._own, data)
        _write_all(number, data)
        return True

    def _drain(self, number: int) -> None:
        """Write what waits, with nobody waiting for it; then end."""
        while (data := self._next()) is not None:
            _write_all(number, data)

    def _next(self) -> bytes | None:
        with self._ready:
            if self._lost and not self._backlog:
                count, self._lost = self._lost, 0
                return (self._left_out(count) + "\n").encode()
            if not self._backlog:
                self._writer = None
                self._ready.notify_all()
                return None
            data = self._backlog.popleft()
            self._bytes -= len(data)
            return data


def _number_of(stream: TextIO) -> int | None:
    """The stream's descriptor; None for one that lies in memory."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _is_file(number: int) -> bool:
    """Whether it is a plain file: nobody has to read what is written there."""
    return stat.S_ISREG(os.fstat(number).st_mode)


def _poll_of(number: int) -> select.poll:
    """What tells whether the descriptor can be written to."""
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return poll


def _own_way_to(number: int) -> int | None:
    """A descriptor of one's own for the same pipe, which never waits: other processes write there, too, and may take
    the room that was just seen. None where the system gives none."""
    if not stat.S_ISFIFO(os.fstat(number).st_mode):
        return None
    try:
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def _write_whole(number: int, data: bytes) -> bool:
    """Write what a pipe takes whole or not at all; False: not now. Where nobody reads any more there is nobody to
    tell."""
    try:
        os.write(number, data)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _write_all(number: int, data: bytes) -> None:
    """Write it; where nobody reads any more, or the disk is full, there is nobody to tell."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(number, view) :]
        except BlockingIOError:
            select.select([], [number], [])  # somebody made it non-blocking
        except OSError:
            return
