"""The black box: what a shard's threads work on at this moment, in a file that outlives the process.

The file is mapped into memory, so a write costs no system call, and what was written is there for whoever reads the
file after a SIGKILL: the kernel has it. Each slot's state byte is written last, so that a slot is either whole or
empty.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import struct
import threading
import types
from collections.abc import Awaitable, Coroutine, Generator
from pathlib import Path
from typing import Final, Self, TypeVar

from stepwell.actors.boxlayout import (
    ATTEMPT,
    ATTEMPT_SIZE,
    ATTEMPTS_AT,
    BEAT_AT,
    BY_LOOP,
    ENTRY,
    ENTRY_AT,
    HEADER,
    MAGIC,
    ON_THREAD,
    PATH_MAX,
    SLOTS,
    THREADS_AT,
    TURN,
    TURN_AT,
    UNSLOTTED_AT,
    USED_AT,
    fault_path,
)
from stepwell.flow.context import StepContext

__all__ = ["NO_BOX", "BlackBox"]

T = TypeVar("T")

_TURN_STATE_AT: Final = TURN_AT + TURN.size - 1
_ENTRY_STATE_AT: Final = ENTRY_AT + ENTRY.size - 1
_WORK_AT: Final = ATTEMPT.size - 2
_STATE_AT: Final = ATTEMPT.size - 1
_THREAD_AT: Final = ATTEMPT.size - 10

_NUMBER = struct.Struct("<I").pack_into
_THREAD = struct.Struct("<Q").pack_into
_SECONDS = struct.Struct("<d").pack_into
_pack_turn = TURN.pack_into
_pack_entry = ENTRY.pack_into
_pack_attempt = ATTEMPT.pack_into


class BlackBox:
    """Written by the scheduler's thread (`turn`, `idle`, `reading`, `read`) and by whoever keeps the attempts, one at
    a time (`begin`, `end`); each attempt's own thread says when it is at work.

    `buffer` is what it is written to: `ATTEMPTS_AT + slots * ATTEMPT_SIZE` zero bytes.
    """

    def __init__(self, buffer: bytearray | mmap.mmap, box_id: bytes, slots: int = SLOTS) -> None:
        self._buffer = buffer
        self._bytes = memoryview(buffer)
        self._free = list(range(slots - 1, -1, -1))
        self._used = 0
        self._unslotted = 0
        self._faults: Path | None = None
        self._fault_fd = -1
        HEADER.pack_into(self._bytes, 0, MAGIC, box_id, os.getpid(), slots, 0, 0, 0, 0, 0.0)

    @classmethod
    def create(cls, path: Path, slots: int = SLOTS) -> Self:
        """A box in a new file at `path`; an older one there is replaced.

        Raises:
            OSError: the file can't be made, or not in full.
        """
        fault_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        size = ATTEMPTS_AT + slots * ATTEMPT_SIZE
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Written in full: a hole that a full disk can't fill would be a fatal signal later.
            missing = memoryview(bytes(size))
            while missing:
                missing = missing[os.write(fd, missing) :]
            buffer = mmap.mmap(fd, size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        box = cls(buffer, os.urandom(16), slots)
        box._faults = fault_path(path)
        return box

    # The scheduler's thread.

    def scheduler_is_here(self) -> None:
        """The calling thread is the one that runs the actors."""
        _THREAD(self._bytes, THREADS_AT, threading.get_ident())

    def turn(self, name: str, since: float) -> None:
        """The actor `name` is at work since that second of the monotonic clock."""
        raw = name.encode()
        _pack_turn(self._bytes, TURN_AT, since, len(raw) & 255, raw, 1)

    def idle(self) -> None:
        """No actor is at work."""
        self._bytes[_TURN_STATE_AT] = 0

    def reading(self, partition: int, entry_id: str) -> None:
        """That inbox entry is being taken apart."""
        raw = entry_id.encode()
        _pack_entry(self._bytes, ENTRY_AT, partition, len(raw) & 255, raw, 1)

    def read(self) -> None:
        """It is read, or refused."""
        self._bytes[_ENTRY_STATE_AT] = 0

    def beat(self, now: float) -> None:
        """A thread that is not the scheduler's runs: if a turn hangs, the process as a whole does not."""
        _SECONDS(self._bytes, BEAT_AT, now)

    # Attempts.

    def begin(self, partition: int, context: StepContext) -> int:
        """An attempt's body is about to begin; its slot, -1 if there is none left."""
        if not self._free:
            self._unslotted += 1
            _NUMBER(self._bytes, UNSLOTTED_AT, self._unslotted)
            return -1
        slot = self._free.pop()
        if slot >= self._used:
            self._used = slot + 1
            _NUMBER(self._bytes, USED_AT, self._used)
        execution, token, path = context.execution_id.encode(), context.token.encode(), context.path.encode()
        _pack_attempt(
            self._bytes,
            ATTEMPTS_AT + slot * ATTEMPT_SIZE,
            partition,
            context.attempt,
            len(execution) & 255,
            len(token) & 255,
            len(path) if len(path) < PATH_MAX else PATH_MAX,
            execution,
            token,
            path,
            0,
            0,
            1,
        )
        return slot

    def end(self, slot: int) -> None:
        """The body has ended."""
        if slot < 0:
            self._unslotted -= 1
            _NUMBER(self._bytes, UNSLOTTED_AT, self._unslotted)
            return
        self._bytes[ATTEMPTS_AT + slot * ATTEMPT_SIZE + _STATE_AT] = 0
        self._free.append(slot)

    def on_thread(self, slot: int) -> None:
        """The body runs on the calling thread until it ends."""
        if slot >= 0:
            at = ATTEMPTS_AT + slot * ATTEMPT_SIZE
            _THREAD(self._bytes, at + _THREAD_AT, threading.get_ident())
            self._bytes[at + _WORK_AT] = ON_THREAD

    def resumed(self, slot: int, body: Coroutine[object, None, T]) -> Awaitable[T]:
        """The same coroutine, which says that it is at work whenever the step loop resumes it."""
        if slot < 0:
            return body
        return _resumed(body, self._bytes, ATTEMPTS_AT + slot * ATTEMPT_SIZE + _WORK_AT)

    def loop_is_here(self) -> None:
        """The calling thread is the one that runs the step loop."""
        _THREAD(self._bytes, THREADS_AT + 8, threading.get_ident())

    def catch_faults(self) -> None:
        """Let the interpreter write where a fatal signal was met: it tells which thread it was. For the process.

        Where the file can't be made, it is not told.
        """
        if self._faults is not None:
            try:
                self._fault_fd = os.open(self._faults, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            except OSError:
                return
            # Of all threads, for only then it says which one is the current one.
            faulthandler.enable(self._fault_fd, all_threads=True)


@types.coroutine
def _resumed(body: Coroutine[object, None, T], marks: memoryview, at: int) -> Generator[object, None, T]:
    """Drives a coroutine and marks when it runs. Awaited inside its task, so that the task, its context and its
    timeouts are what they would be without it. As a generator it costs least: no call, and nothing raised at the end.
    """
    thrown: BaseException | None = None
    marks[at] = BY_LOOP
    try:
        waits_for = body.send(None)
        while True:
            marks[at] = 0
            thrown = None
            try:
                yield waits_for
            except GeneratorExit:
                marks[at] = BY_LOOP
                body.close()
                raise
            except BaseException as error:
                thrown = error
            marks[at] = BY_LOOP
            waits_for = body.send(None) if thrown is None else body.throw(thrown)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        marks[at] = 0
        thrown = None  # its traceback holds this frame


class _NoBox(BlackBox):
    """Remembers nothing: for a shard whose process nobody looks after."""

    def __init__(self) -> None:
        super().__init__(bytearray(ATTEMPTS_AT), bytes(16), 0)

    def turn(self, name: str, since: float) -> None:
        return

    def reading(self, partition: int, entry_id: str) -> None:
        return

    def begin(self, partition: int, context: StepContext) -> int:
        return -1

    def end(self, slot: int) -> None:
        return

    def scheduler_is_here(self) -> None:
        return

    def loop_is_here(self) -> None:
        return

    def beat(self, now: float) -> None:
        return


NO_BOX: Final = _NoBox()
