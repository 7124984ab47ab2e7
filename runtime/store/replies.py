"""What the store answers: one small type per row of the reply table, and readers for raw Redis replies.

Raw replies differ between RESP2 and RESP3 (flat lists against maps, text against numbers); the readers take both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)

from stepwell.core.codec import UNREADABLE

__all__ = [
    "TRANSIENT",
    "UNREACHABLE",
    "Broken",
    "Buried",
    "Committed",
    "Conflict",
    "Created",
    "Exists",
    "Failure",
    "Fenced",
    "Forgotten",
    "Loaded",
    "MasterLost",
    "Refused",
    "Reply",
    "Unlisted",
    "decoded",
    "decoded_fields",
    "entries_of",
    "failure",
    "fields_of",
    "items_of",
    "number",
    "order",
    "pairs_of",
    "scored",
    "streams_of",
    "text",
    "time_us",
]

T = TypeVar("T")

# Our own word among the servers': one master of a cluster can't be reached.
UNREACHABLE: Final = "UNREACHABLE"
TRANSIENT: Final = frozenset(
    {"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY"}
    | {UNREACHABLE}
)


class MasterLost(RedisError):
    """Stands for the reply of one master of a cluster that can't be reached; what it did is unknown."""


# redis-py takes the code off the messages that it has a class for.
_CODE_OF: Final[dict[type[RedisError], str]] = {
    BusyLoadingError: "LOADING",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    MasterLost: UNREACHABLE,
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}

# Redis 6.2 wraps what a command inside a script answered: "Error running script (...): ... -OOM command ...".
_WRAPPED = re.compile(r"@user_script.*?-([A-Z]+) ", re.DOTALL)


class Committed(msgspec.Struct, frozen=True):
    """The row is as the request wanted it; `dup` when an earlier sending of the same request did it.

    `seq` is the partition's count of such writes, this one included; 0 where it was done before.
    """

    dup: bool = False
    seq: int = 0


class Fenced(msgspec.Struct, frozen=True):
    """The caller does not hold the partition's lease; `holder` is the lease there is, '' for none."""

    holder: str


class Conflict(msgspec.Struct, frozen=True):
    """The row has another revision than expected; `stored_rev` is -1 where there is no row (or no readable rev)."""

    stored_rev: int
    stored_commit: str


class Loaded(msgspec.Struct, frozen=True):
    """A row's fields; empty where there is no row."""

    fields: dict[str, bytes]


class Buried(msgspec.Struct, frozen=True):
    """The entry is among the dead letters; `dup` when it had left the inbox before."""

    dup: bool = False


class Created(msgspec.Struct, frozen=True):
    """The execution is new and queued."""


class Exists(msgspec.Struct, frozen=True):
    """There is an execution with that id already; nothing was written."""

    flow: str
    input_hash: str
    status: str


class Refused(msgspec.Struct, frozen=True):
    """The server can't do it now (full, read-only, loading, ...); nothing was written; send it again later.

    `kind` is the server's word for it, one of `TRANSIENT`; `reason` its sentence. `UNREACHABLE` is our word: one master
    of a cluster did not answer, and whether anything was written is unknown.
    """

    reason: str
    kind: str


class Broken(msgspec.Struct, frozen=True):
    """An answer that no healthy store gives: a key of a foreign type, or a fault in Stepwell. No row was changed."""

    message: str

    @property
    def wrong_type(self) -> bool:
        """Whether a key is of another type than ours: that stays so until somebody removes it."""
        return self.message.startswith("WRONGTYPE")

    @property
    def said(self) -> str:
        """The message for a person: without Redis' word for it."""
        return self.message.removeprefix("WRONGTYPE ")


class Unlisted(msgspec.Struct, frozen=True):
    """An execution without a row was taken off so many lists; 0 where it has a row, or was on none."""

    lists: int


class Forgotten(msgspec.Struct, frozen=True):
    """Nothing is held any more against what was named."""


Failure = Refused | Broken
Reply = Committed | Fenced | Conflict | Loaded | Buried | Unlisted | Forgotten | Created | Exists | Refused | Broken


def failure(error: RedisError) -> Failure:
    """Sorts a server's error reply: may pass by itself, or not."""
    message = str(error)
    code = _CODE_OF.get(type(error)) or message.split(" ", 1)[0]
    if code not in TRANSIENT:
        wrapped = _WRAPPED.search(message)
        if wrapped and wrapped[1] in TRANSIENT:
            code = wrapped[1]
    if code in TRANSIENT:
        return Refused(message, code)
    return Broken(message)


def text(raw: object) -> str:
    """A string from a reply; bytes that are no UTF-8 are shown escaped; nil is ''."""
    if isinstance(raw, bytes):
        return raw.decode(errors="backslashreplace")
    return "" if raw is None else str(raw)


def number(raw: object) -> int:
    """A whole number from a reply, 0 for nil. Raises ValueError for anything else."""
    if isinstance(raw, int):
        return raw
    return int(text(raw) or "0")


def items_of(raw: object) -> list[object]:
    """The elements of an array reply; nil is the empty one. Raises TypeError where it is none."""
    if raw is None:
        return []
    if isinstance(raw, list):
        return raw
    if isinstance(raw, set | tuple):
        return list(raw)
    raise TypeError(f"expected an array from the server, got {type(raw).__name__}")


def pairs_of(raw: object) -> list[tuple[object, object]]:
    """What a map holds, or a flat list of names and values, or one of pairs."""
    if isinstance(raw, dict):
        return list(raw.items())
    flat = items_of(raw)
    if flat and isinstance(flat[0], list):
        return [(name, value) for name, value in (pair for pair in flat if isinstance(pair, list))]
    return list(zip(flat[::2], flat[1::2], strict=True))


def fields_of(raw: object) -> dict[str, bytes]:
    """The fields of a hash or a stream entry."""
    if type(raw) is list:
        # Nearly always: a flat list of bytes. Each row and each inbox entry comes by here.
        flat = iter(raw)
        try:
            return {name.decode(): value for name, value in zip(flat, flat, strict=True) if type(value) is bytes}
        except (AttributeError, ValueError):
            pass
    return {text(name): value for name, value in pairs_of(raw) if isinstance(value, bytes)}


def decoded_fields(raw: object, kind: type[T]) -> dict[str, T]:
    """The JSON values of a hash, by field; what is none of that kind is passed over."""
    found: dict[str, T] = {}
    for name, value in fields_of(raw).items():
        try:
            found[name] = msgspec.json.decode(value, type=kind)
        except UNREADABLE:
            continue
    return found


def scored(raw: object) -> list[tuple[str, float]]:
    """Members of a sorted set with their scores."""
    return [(text(member), _score(score)) for member, score in pairs_of(raw)]


def _score(raw: object) -> float:
    return raw if isinstance(raw, float) else float(text(raw))


def streams_of(raw: object) -> list[tuple[str, list[tuple[str, dict[str, bytes]]]]]:
    """What XREAD answers: for each stream its entries, oldest first."""
    return [(text(stream), entries_of(entries)) for stream, entries in pairs_of(raw)]


def entries_of(raw: object) -> list[tuple[str, dict[str, bytes]]]:
    """Entries of one stream: id and fields. A deleted entry (nil fields) has none."""
    return [(text(entry[0]), fields_of(entry[1])) for entry in items_of(raw) if isinstance(entry, list)]


def order(entry_id: str) -> tuple[int, int]:
    """Sorts ids of a stream's entries by age; the newest last."""
    at, _, nth = entry_id.partition("-")
    return int(at), int(nth or "0")


def time_us(raw: object) -> int:
    """The server's wall clock in microseconds since the epoch, by its reply to TIME."""
    seconds, micros = items_of(raw)
    return number(seconds) * 1_000_000 + number(micros)


def decoded(raw: object, decode: Callable[[list[object]], Reply]) -> Reply:
    """Decodes a script's array answer; one that does not fit is `Broken`, never an exception in the caller's loop."""
    try:
        return decode(items_of(raw))
    except (TypeError, ValueError, IndexError) as error:
        return Broken(f"the server answered {raw!r:.200}, which this version does not understand ({error})")
