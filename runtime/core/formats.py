"""The format of what is written to Redis, and how to tell that something was written by a newer version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = ["FORMAT", "FORMAT_MAX", "entry_format", "row_format"]

FORMAT: Final = 1
"""What rows and inbox entries are written in, and the newest format that is read. Older ones are read for ever."""

FORMAT_MAX: Final = 999
"""What claims to be beyond this is garbage, not the future."""


class _Meta(msgspec.Struct):
    format: int = 1


_decode = msgspec.json.Decoder(_Meta).decode


def row_format(fields: Mapping[str, bytes]) -> int:
    """The format of a row; `FORMAT` where it does not say one that can be read: it is damaged, then."""
    try:
        found = _decode(fields["meta"]).format
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError):
        return FORMAT
    return found if 1 <= found <= FORMAT_MAX else FORMAT


def entry_format(fields: Mapping[str, bytes]) -> int | None:
    """The format (`v`) of an entry of an inbox or of the ingress; one that does not say it has the first. None: `v` is
    no format."""
    raw = fields.get("v", b"1")
    if not raw.isdigit() or len(raw) > len(str(FORMAT_MAX)) or raw[:1] == b"0":
        return None
    return int(raw)
