"""Reads a sheet, whoever writes it and whether they live: definitions once, numbers each time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from stepwell.metrics.instruments import Instrument
from stepwell.metrics.sheetlayout import (
    BY_PRINT,
    CELL,
    HEADER_SIZE,
    MAGIC,
    MARK,
    MARK_SIZE,
    RECORD,
    SEGMENT_SIZE,
    SIZE,
    SKIP,
    cells_of,
    check,
    padded,
)

__all__ = ["ZERO_AT", "Mark", "Seen", "SheetReader"]

UNTRACED: Final = bytes(16)
ZERO_AT: Final = 1
"""A number of every sheet that is always 0."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A series that the sheet defines; `at`: the place of its first number."""

    instrument: Instrument
    values: tuple[str, ...]
    at: int


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An exemplar: the execution that was counted last in a bucket (0 for a counter), with the value and the second;
    `trace` in hex, empty where it is not traced."""

    execution: str
    value: float
    at: float
    trace: str = ""


class SheetReader:
    """`read` gives the sheet's bytes as they are now. A record that is not whole is not there (yet)."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._raw = bytes(SEGMENT_SIZE)
        self._at = HEADER_SIZE
        self._cells: list[tuple[int, int, int]] = []
        self._checksums: list[int] = []
        self.series: list[Seen | None] = []
        """All that were found by now, in the order of the sheet; it only grows. None: not of this version."""

    def look(self) -> Sequence[float]:
        """Read it: its numbers, by place. What can't be read, or is shorter than before, leaves what was known."""
        try:
            raw = self._read()
        except OSError:
            raw = b""
        if len(raw) >= len(self._raw) and raw.startswith(MAGIC):
            self._raw = raw
        self._find()
        return memoryview(self._raw)[: len(self._raw) // CELL * CELL].cast("d")

    def marks(self) -> Iterator[tuple[int, int, Mark]]:
        """Exemplars that are new since they were last asked for, as they were at the last look: index of their series
        in `series`, bucket, exemplar."""
        raw, known = self._raw, self._checksums
        words = memoryview(raw)[: len(raw) // SIZE.size * SIZE.size].cast("I")
        known += [0] * (len(self._cells) - len(known))
        unpack, size_of, crc = MARK.unpack_from, SIZE.size, zlib.crc32
        for number, (subject, bucket, at) in enumerate(self._cells):
            checksum = words[at // size_of]
            if checksum != known[number] and crc(raw[at + size_of : at + MARK_SIZE]) == checksum:
                known[number] = checksum
                _, size, value, seconds, name, trace = unpack(raw, at)
                traced = "" if trace == UNTRACED else trace.hex()
                yield subject, bucket, Mark(name[:size].decode(errors="replace"), value, seconds, traced)

    def _find(self) -> None:
        """Definitions that are new."""
        raw = self._raw
        while True:
            left = SEGMENT_SIZE - self._at % SEGMENT_SIZE
            if self._at + left > len(raw):
                return
            if left < RECORD.size:
                self._at += left
                continue
            size, text_size, bucket, checksum, subject = RECORD.unpack_from(raw, self._at)
            if size == SKIP:
                self._at += left
                continue
            if not RECORD.size <= size <= left or RECORD.size + text_size > size:
                return
            text = raw[self._at + RECORD.size : self._at + RECORD.size + text_size]
            if check(text, bucket, subject) != checksum:
                return
            cells_at = self._at + RECORD.size + padded(text_size)
            if bucket:
                self._cells.append((subject, bucket - 1, cells_at))
            else:
                self._defined(text, subject, cells_at, self._at + size)
            self._at += size

    def _defined(self, text: bytes, subject: int, cells_at: int, end: int) -> None:
        instrument = BY_PRINT.get(subject)
        values = tuple(text.decode(errors="replace").split("\0")) if instrument and instrument.labels else ()
        fits = (
            instrument is not None
            and len(values) == len(instrument.labels)
            and cells_at + cells_of(instrument) * CELL <= end
        )
        self.series.append(Seen(instrument, values, cells_at // CELL) if instrument is not None and fits else None)
