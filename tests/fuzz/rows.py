"""Rows that somebody has been at: fields gone, cut short, replaced, or well-formed with values that make no sense."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fuzz.values import NESTED, damaged, json_values, numbers, odd_bytes
from hypothesis import strategies as st

WORDS = (
    *("queued", "running", "waiting", "parked", "completed", "error", "cancelled", "paused", "gone"),
    *("ready", "backoff", "failed", "timed_out", "step", "timer", "signal", "cancel", "gather", "", "toil", "course"),
    *("not deployed here", "unreadable row", "crashed", "crashes its shard", "code diverged"),
)
KNOWN_FIELDS = (
    *("meta", "status", "rev", "commit", "input", "flow", "applied", "error", "failures", "left", "failed", "result"),
    *("cancelling", "started_at", "ended_at", "created_at", "updated_at", "p:toil", "r:toil", "a:toil:1", "s:1"),
    *(
        "p:",
        "r:",
        "a:",
        "a:x",
        "a:x:y",
        "s:",
        "s:x",
        "s:-1",
        "s:\u00b2",
        "r:gather.0/toil",
        "p:gather.9/x#3",
        "p:sleep",
    ),
)

other_values = st.sampled_from(WORDS) | numbers | json_values


@dataclass(frozen=True)
class Damage:
    """What is done to one field: it is removed (None), or replaced."""

    field: str
    value: bytes | None


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Places inside a JSON value, itself included."""
    found = [place]
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            found += _leaves(child, (*place, key))
    return found


def _put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _put(copy[place[0]], place[1:], new)
    return copy


HOLES = (b'"\xff"', b"[" * 2000 + b"]" * 2000, b"[" * 900 + b"]" * 900, NESTED, b"1e999", b'"\\ud800"', b"-", b"")
"""What stands in a payload is not looked at before somebody wants it."""


@st.composite
def well_formed(draw: st.DrawFn, raw: bytes) -> bytes:
    """The same JSON with one value, or one key, that makes no sense."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return json.dumps(draw(other_values)).encode()
    places = _leaves(value)
    payloads = [place for place in places if place and place[-1] in ("value", "payload")]
    if payloads and draw(st.integers(0, 2)) == 0:
        holed = json.dumps(_put(value, draw(st.sampled_from(payloads)), "HOLE")).encode()
        return holed.replace(b'"HOLE"', draw(st.sampled_from(HOLES)))
    place = draw(st.sampled_from(places))
    inner = value
    for key in place:
        inner = inner[key]
    if isinstance(inner, dict) and inner and draw(st.booleans()):
        gone = draw(st.sampled_from(sorted(inner)))
        return json.dumps(_put(value, place, {k: v for k, v in inner.items() if k != gone})).encode()
    return json.dumps(_put(value, place, draw(other_values))).encode()


@st.composite
def damage_to(draw: st.DrawFn, row: Mapping[str, bytes]) -> Damage:
    """One change of a row."""
    fields = sorted(row) if row and draw(st.integers(0, 4)) else list(KNOWN_FIELDS)
    field = draw(st.sampled_from(fields))
    raw = row.get(field, b"")
    kind = draw(
        st.sampled_from(["well-formed", "well-formed", "well-formed", "gone", "damaged", "word", "odd", "other"])
    )
    if kind == "gone":
        return Damage(field, None)
    if kind == "well-formed":
        return Damage(field, draw(well_formed(raw)))
    if kind == "word":
        return Damage(field, draw(st.sampled_from(WORDS)).encode())
    if kind == "other" and row:
        prefixes = [name for name in sorted(row) if name[:2] == field[:2]]
        return Damage(field, row[draw(st.sampled_from(prefixes or sorted(row)))])
    return Damage(field, draw(damaged(raw) if kind == "damaged" else odd_bytes))


def damaged_row(row: Mapping[str, bytes], damages: Iterable[Damage]) -> dict[str, bytes]:
    """The row after all that."""
    after = dict(row)
    for damage in damages:
        if damage.value is None:
            after.pop(damage.field, None)
        else:
            after[damage.field] = damage.value
    return after
