"""Where a sheet's segments lie: in memory, or in a file that outlives its process."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from pathlib import Path
from typing import Final, Protocol

from stepwell.metrics.saying import say
from stepwell.metrics.sheetlayout import HEADER_SIZE, MAGIC, SEGMENT_SIZE

__all__ = ["FileSegments", "MemorySegments", "Segments", "SheetFile", "Source"]

_EMPTY: Final = bytes(SEGMENT_SIZE)
_logger = logging.getLogger("stepwell.metrics")


class Source(Protocol):
    """A sheet for those who read it."""

    def read(self) -> bytes:
        """All of it, as it is now; OSError where it can't be read."""
        ...

    def close(self) -> None:
        """Nobody reads it any more."""
        ...


class Segments(Source, Protocol):
    """A sheet's memory."""

    def grow(self) -> memoryview:
        """One more segment: zeros, but for the header of the first."""
        ...


class MemorySegments:
    """For one process."""

    def __init__(self) -> None:
        self._all: list[bytearray] = []

    def grow(self) -> memoryview:
        """One more segment."""
        segment = bytearray(SEGMENT_SIZE)
        if not self._all:
            segment[: len(MAGIC)] = MAGIC
        self._all.append(segment)
        return memoryview(segment)

    def read(self) -> bytes:
        """All of it, as it is now. From any thread."""
        return b"".join(self._all)

    def close(self) -> None:
        """Nothing has to be closed."""


class FileSegments:
    """In an empty sheet's file. Where it can't grow, what does not fit is counted in vain: metrics stop no work."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._count = 0
        self._full = False

    def grow(self) -> memoryview:
        """One more segment."""
        at = self._count * SEGMENT_SIZE
        if self._full:  # records are numbered by their order in the file: none may be missing in between
            return memoryview(bytearray(SEGMENT_SIZE))
        try:
            if at:
                _write(self._fd, at, _EMPTY)
            segment = mmap.mmap(self._fd, SEGMENT_SIZE, offset=at)
        except OSError as error:
            say(
                _logger,
                "FileUnusable",
                "metrics of this process are incomplete (%s: %s): make room there, or set TMPDIR, and restart the"
                " worker",
                self._path,
                error.strerror,
                part="metrics",
                error=error,
            )
            self._full = True
            return memoryview(bytearray(SEGMENT_SIZE))
        self._count += 1
        return memoryview(segment)

    def read(self) -> bytes:
        """All of it, as it is now; OSError where it can't be read."""
        return _read(self._fd)

    def close(self) -> None:
        """It stays as it is: whoever made the file removes it."""


class SheetFile:
    """An empty sheet in a new file at `path`, for one process to write (`Sheet.open`); an older file there is replaced.
    It can be read as long as it is not closed, whatever becomes of its name and of its writer.

    Raises:
        OSError: the file can't be made, or not in full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Written in full: a hole that a full disk can't fill would be a fatal signal later.
            _write(self._fd, 0, MAGIC.ljust(HEADER_SIZE, b"\0").ljust(SEGMENT_SIZE, b"\0"))
        except BaseException:
            self.close()
            raise

    def read(self) -> bytes:
        """All of it, as it is now, from the kernel's memory.

        Raises:
            OSError: it can't be read.
        """
        return _read(self._fd)

    def close(self) -> None:
        """Remove it, unless another one has its name by now. Closing twice is harmless."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                    self._path.unlink()
            os.close(self._fd)
            self._fd = -1


def _read(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _write(fd: int, at: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(fd, left, at)
        at += written
        left = left[written:]
