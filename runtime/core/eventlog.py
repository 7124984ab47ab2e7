"""Events as they stand in the events streams: JSON arrays, which a newer version or anybody else may have written."""

from __future__ import annotations

import msgspec

from stepwell.core import codec
from stepwell.core.events import Event
from stepwell.core.redact import redact

__all__ = ["RawEvent", "execution_of", "fields_of", "kind_of", "read_events"]

GARBAGE = "garbage"
_SHOWN_MAX = 200


class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that this version does not know: of a newer one, or `garbage` that is none. `fields` as they stand."""

    kind: str
    fields: dict[str, object]


_decode = msgspec.json.Decoder(tuple[Event, ...]).decode
_decode_one = msgspec.json.Decoder(Event).decode
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_events(raw: bytes) -> tuple[Event | RawEvent, ...]:
    """The events of one entry; what can't be understood is a RawEvent, whatever it is."""
    try:
        return _decode(raw)
    except codec.UNREADABLE:
        pass  # each is looked at for itself
    try:
        return tuple(_one(part) for part in _decode_parts(raw))
    except codec.UNREADABLE:
        return (_garbage(raw),)


def kind_of(event: Event | RawEvent) -> str:
    """What it is called."""
    return event.kind if isinstance(event, RawEvent) else type(event).__name__


def fields_of(event: Event | RawEvent) -> dict[str, object]:
    """All that it says, by name."""
    return dict(event.fields) if isinstance(event, RawEvent) else msgspec.structs.asdict(event)


def execution_of(event: Event | RawEvent) -> str:
    """Whose it is; "" where it does not say."""
    named = event.fields.get("execution_id", "") if isinstance(event, RawEvent) else event.execution_id
    return named if isinstance(named, str) else ""


def _one(part: msgspec.Raw) -> Event | RawEvent:
    try:
        return _decode_one(part)
    except codec.UNREADABLE:
        pass  # of a newer version, or of nobody
    try:
        found = codec.decode_foreign(part)
    except codec.UNREADABLE:
        return _garbage(bytes(part))
    if not isinstance(found, dict):
        return _garbage(bytes(part))
    return RawEvent(str(found.pop("type", GARBAGE)), found)


def _garbage(raw: bytes) -> RawEvent:
    text = redact(raw[: 4 * _SHOWN_MAX].decode("utf-8", "backslashreplace"))
    return RawEvent(GARBAGE, {"text": text[:_SHOWN_MAX]})
