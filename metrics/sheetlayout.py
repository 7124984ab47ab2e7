"""How a sheet lies in its file: segments of records, each appended once and for all, little endian.

A record is a head, a text and cells of eight bytes. Its size is written last, and a checksum covers head and text, so
that a record is either whole or the end of the sheet. A series' text are its label values, its cells are its numbers:
they begin as zeros (a level as NaN) and are the only bytes that ever change, with the cells of a mark (an exemplar).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind

__all__ = [
    "BY_PRINT",
    "CELL",
    "HEADER_SIZE",
    "MAGIC",
    "MARK",
    "MARK_SIZE",
    "PRINTS",
    "RECORD",
    "SEGMENT_SIZE",
    "SIZE",
    "SKIP",
    "cells_of",
    "check",
    "padded",
]

SEGMENT_SIZE: Final = 1 << 16
"""A multiple of what any system maps by."""
HEADER_SIZE: Final = 64
"""Of the first segment: the magic word, then zeros."""
MAGIC: Final = b"SWSHEET2"
CELL: Final = 8

# size; length of the text; a series: 0, a mark: 1 + its bucket; checksum; instrument of a series, or series of a mark
RECORD: Final = struct.Struct("<IHHII")
SIZE: Final = struct.Struct("<I")
SKIP: Final = 0xFFFFFFFF
"""In place of a size: the rest of the segment is empty."""
_CHECKED: Final = struct.Struct("<HHI")

# checksum of the rest, length of the id; value; seconds since the epoch; execution id; id of its trace, or zeros
MARK: Final = struct.Struct("<IIdd128s16s")
MARK_SIZE: Final = MARK.size


def check(text: bytes, bucket: int, subject: int) -> int:
    """The checksum of a record."""
    return zlib.crc32(text, zlib.crc32(_CHECKED.pack(len(text), bucket, subject)))


def padded(size: int) -> int:
    """Up to the next cell."""
    return -(-size // CELL) * CELL


def cells_of(instrument: Instrument) -> int:
    """How many numbers a series has: a histogram's buckets, the last without a bound, and the sum."""
    return len(instrument.bounds) + 2 if instrument.kind is Kind.HISTOGRAM else 1


def _print(instrument: Instrument) -> int:
    """Another one for each name, set of labels and buckets: a file that another version wrote is not misread."""
    said = (instrument.full_name, [label.name for label in instrument.labels], instrument.bounds)
    return zlib.crc32(repr(said).encode())


BY_PRINT: Final = {_print(instrument): instrument for instrument in INSTRUMENTS}
PRINTS: Final = {id(instrument): number for number, instrument in BY_PRINT.items()}
