"""Payloads: JSON that redis-cli can read, typed through msgspec.

Dataclasses, Structs, enums, datetimes, Decimals, UUIDs, bytes (base64), tuples and sets come back as they are
annotated; pydantic models through their own `model_dump` and `model_validate`. Without an annotation what
comes back is plain JSON: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate
from typing import Any

import msgspec

from stepwell.core.errors import PayloadError

PAYLOAD_BYTES_MAX = 1024 * 1024
NESTING_MAX = 200  # far under what a decoder on a deep stack can take
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_ANY_TYPES = (Any, object, None)
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding raises for bytes that anyone may have written: no JSON, no UTF-8, another type, nested too deeply."""


def _enc_hook(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    raise NotImplementedError


def _dec_hook(wanted: type, value: Any) -> Any:
    if wanted is object:  # inside a container: dict[str, object]
        return value
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise TypeError(f"JSON can't be turned into a {wanted.__qualname__}")
    return validate(value)


_encode = msgspec.json.Encoder(enc_hook=_enc_hook).encode
_decode_any = msgspec.json.Decoder().decode


def encode(value: object, what: str, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The JSON of a value.

    Args:
        value: what to encode.
        what: names the value in messages, such as "the result of step charge".
        limit: most bytes that are accepted.

    Raises:
        PayloadError: not encodable (names type and place), over the limit (names the size), NaN or infinite,
            or nested too deeply.
    """
    if value is None:
        return b"null"
    try:
        raw = _encode(value)
    except RecursionError as error:
        raise _too_deep(what) from error
    except Exception as error:  # a value's own code (properties, model_dump) may raise anything
        place, culprit = _find_culprit(value, "$", 0)
        raise PayloadError(
            f"{what} can't be stored: {place} is of type {type(culprit).__qualname__}, which is not JSON;"
            f" use dicts, lists, dataclasses or other plain data ({str(error) or 'unsupported type'})"
        ) from error
    if len(raw) > limit:
        raise PayloadError(
            f"{what} is too large: {len(raw):,} bytes, the limit is {limit:,}; store it elsewhere and pass a reference"
        )
    if len(raw) > 2 * NESTING_MAX and _is_deep(raw):  # each level has two brackets
        raise _too_deep(what)
    if b"null" in raw:
        place_of_nan = _find_nan(value, "$", 0)
        if place_of_nan is not None:
            raise PayloadError(f"{what} can't be stored: {place_of_nan} is NaN or infinite, which JSON does not have")
    return raw


def decoder(annotation: Any) -> Any:
    """A decoder for an annotation; one for plain JSON where there is none.

    Raises:
        TypeError: the annotation is nothing that can be decoded.
    """
    if annotation in _ANY_TYPES:
        return msgspec.json.Decoder()
    return msgspec.json.Decoder(annotation, dec_hook=_dec_hook)


def decode(raw: bytes | msgspec.Raw, using: Any, what: str) -> Any:
    """The value that the JSON holds, as the decoder's annotation asks.

    Raises:
        PayloadError: it does not fit; the message names the place.
    """
    try:
        return using.decode(raw)
    except Exception as error:  # so may the code that builds the annotated type
        raise PayloadError(f"{what} does not fit: {error}") from error


def decode_plain(raw: bytes | msgspec.Raw) -> Any:
    """Plain JSON: dict, list, str, int, float, bool or None."""
    return _decode_any(raw)


def decode_foreign(raw: bytes | msgspec.Raw) -> object:
    """Plain JSON that may not have come out of `encode`. Raises one of `UNREADABLE`, also where it is nested deeper
    than `encode` lets it be: whoever handles the value may have a deep stack already."""
    if _is_deep(bytes(raw)):
        raise ValueError(f"nested deeper than {NESTING_MAX} levels")
    return _decode_any(raw)


def check_foreign(raw: bytes, what: str) -> bytes:
    """JSON that did not come out of `encode`, if it might have.

    Raises:
        PayloadError: no JSON, over the limit, or nested too deeply.
    """
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"{what} is too large: {len(raw):,} bytes, the limit is {PAYLOAD_BYTES_MAX:,}")
    try:
        decode_foreign(raw)
    except UNREADABLE as error:
        raise PayloadError(f"{what} can't be read as JSON: {error}") from error
    return raw


def canonical(value: object, what: str) -> bytes:
    """JSON with sorted keys: equal values give equal bytes."""
    return msgspec.json.encode(_decode_any(encode(value, what)), order="sorted")


def _too_deep(what: str) -> PayloadError:
    return PayloadError(f"{what} can't be stored: it is nested deeper than {NESTING_MAX} levels; make it flatter")


def _is_deep(raw: bytes) -> bool:
    return raw.count(b"[") + raw.count(b"{") > NESTING_MAX and _nesting(raw) > NESTING_MAX


def _nesting(raw: bytes) -> int:
    """How deep the lists and objects of a JSON text are nested."""
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)


def _find_culprit(value: object, place: str, depth: int) -> tuple[str, object]:
    """The first part of a value that can't be encoded on its own."""
    if depth > NESTING_MAX:
        return place, value
    for step, child in _children(value):
        try:
            _encode(child)
        except Exception:
            return _find_culprit(child, place + step, depth + 1)
    return place, value


def _find_nan(value: object, place: str, depth: int) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    if depth > NESTING_MAX:
        return None
    for step, child in _children(value):
        found = _find_nan(child, place + step, depth + 1)
        if found is not None:
            return found
    return None


def _children(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, str | bytes | bytearray):
        return []
    if isinstance(value, Sequence):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, Set):
        return [("{...}", child) for child in value]
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    if fields and not isinstance(value, type):
        return [(f".{name}", getattr(value, name, None)) for name in fields]
    return []
