"""Cursors: where a listing goes on, as short text that means something to nobody else."""

from __future__ import annotations

import base64
import hashlib

import msgspec

from stepwell.core.errors import UsageError

__all__ = ["Cursor", "decode_cursor", "digest_of", "encode_cursor"]


class Cursor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The execution that a listing has looked at last, and which listing it was.

    `digest` tells one listing from another, `choice` names the lists that it reads. `since_ms` and `until_ms`
    bound it: a time that was given as `2h ago` stays where it was.
    """

    digest: str
    choice: str
    at_ms: int
    execution_id: str
    since_ms: int | None = None
    until_ms: int | None = None


def digest_of(wanted: object) -> str:
    """A few characters that differ between listings."""
    raw = msgspec.json.encode(wanted, order="deterministic")
    return hashlib.blake2b(raw, digest_size=4).hexdigest()


def encode_cursor(cursor: Cursor) -> str:
    """Letters, digits, `-` and `_`."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str) -> Cursor:
    """Raises UsageError for what `encode_cursor` did not make."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = msgspec.msgpack.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
    except (ValueError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise _no_cursor() from error
    if encode_cursor(cursor) != text:
        raise _no_cursor()
    return cursor


def _no_cursor() -> UsageError:
    return UsageError("that is no cursor of a listing: give the one that the page before came with, as it is")
