"""What is accepted comes back equal and typed as it is annotated; what can't be stored is an error that says where."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from fuzz.budget import fuzz
from fuzz.refusals import refusal
from fuzz.values import json_values, odd_bytes, plain_texts
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core import codec
from stepwell.core.errors import PayloadError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float
    label: str = ""


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    lines: list[Point]
    at: dt.datetime
    total: decimal.Decimal
    colours: set[Colour]
    note: str | None = None
    raw: bytes = b""


class Tree(msgspec.Struct, frozen=True):
    value: int
    children: tuple[Tree, ...] = ()


class Pair(NamedTuple):
    left: str
    right: int


class Extra(TypedDict):
    key: str
    many: list[int]


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag=True):
    amount: int


WHOLE = st.integers() | st.sampled_from([2**53 + 1, 2**63, -(2**63), 2**64, 10**30])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(
    min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC) | st.none()
)
ZONED = st.datetimes(
    min_value=dt.datetime(2, 1, 2),
    max_value=dt.datetime(9998, 12, 30),
    timezones=st.sampled_from([dt.timezone(dt.timedelta(minutes=m)) for m in (-720, -90, 0, 345, 840)]),
)
points = st.builds(Point, WHOLE, FINITE, plain_texts)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12)
orders = st.builds(
    Order,
    st.uuids(),
    st.lists(points, max_size=3),
    MOMENTS,
    decimals,
    st.sets(st.sampled_from(Colour)),
    st.none() | plain_texts,
    st.binary(max_size=20),
)
trees = st.recursive(
    st.builds(Tree, WHOLE), lambda inner: st.builds(Tree, WHOLE, st.lists(inner, max_size=3).map(tuple))
)
spans = st.timedeltas(min_value=dt.timedelta(days=-9999), max_value=dt.timedelta(days=9999))

TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, WHOLE),
    (float, FINITE),
    (str, plain_texts),
    (bytes, st.binary(max_size=50)),
    (dt.datetime, MOMENTS | ZONED),
    (dt.date, st.dates()),
    (dt.timedelta, spans),
    (decimal.Decimal, decimals),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (Point, points),
    (Order, orders),
    (Tree, trees),
    (Pair, st.builds(Pair, plain_texts, WHOLE)),
    (Extra, st.fixed_dictionaries({"key": plain_texts, "many": st.lists(WHOLE, max_size=3)})),
    (Card | Cash, st.builds(Card, plain_texts) | st.builds(Cash, WHOLE)),
    (Point | None, st.none() | points),
    (int | str | None, WHOLE | plain_texts | st.none()),
    (list[Colour], st.lists(st.sampled_from(Colour), max_size=3)),
    (set[int], st.sets(WHOLE, max_size=4)),
    (frozenset[str], st.frozensets(plain_texts, max_size=4)),
    (tuple[int, str, bytes], st.tuples(WHOLE, plain_texts, st.binary(max_size=5))),
    (tuple[Point, ...], st.lists(points, max_size=3).map(tuple)),
    (dict[str, list[Point]], st.dictionaries(plain_texts, st.lists(points, max_size=2), max_size=3)),
    (dict[int, Colour], st.dictionaries(WHOLE, st.sampled_from(Colour), max_size=3)),
    (dict[uuid.UUID, dt.date], st.dictionaries(st.uuids(), st.dates(), max_size=3)),
    (
        dict[str, dict[str, set[bytes]]],
        st.dictionaries(
            plain_texts,
            st.dictionaries(plain_texts, st.sets(st.binary(max_size=4), max_size=2), max_size=2),
            max_size=2,
        ),
    ),
]
typed = st.sampled_from(range(len(TYPED))).flatmap(lambda n: st.tuples(st.just(TYPED[n][0]), TYPED[n][1]))


class Opaque:
    """Nothing that JSON has."""


unstorable = st.sampled_from([Opaque(), object(), lambda: 1, print, Opaque, 1j, math.nan, math.inf, -math.inf])


@pytest.mark.pain(55)
@fuzz(250)
@given(typed)
def test_an_annotated_value_comes_back_equal_and_of_its_type(drawn: tuple[Any, Any]) -> None:
    annotation, value = drawn
    raw = codec.encode(value, "the value")
    back = codec.decode(raw, codec.decoder(annotation), "the value")
    assert back == value
    assert type(back) is type(value)
    assert codec.encode(back, "the value") == raw or isinstance(value, set | frozenset | dict | Order)
    codec.check_foreign(raw, "the value")


@fuzz(120)
@given(json_values)
def test_plain_json_is_stored_as_it_is_or_refused_with_its_place(value: object) -> None:
    why = refusal(lambda: codec.encode(value, "the value"), PayloadError)
    if why:
        assert why.startswith("the value")
        assert _has_no_place(value)
        return
    raw = codec.encode(value, "the value")
    assert codec.decode_plain(raw) == value
    assert codec.canonical(value, "the value") == codec.canonical(codec.decode_plain(raw), "the value")


def _has_no_place(value: object) -> bool:
    """Whether there is something in it that UTF-8 can't hold."""
    if isinstance(value, dict):
        return any(map(_has_no_place, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_has_no_place, value))
    return isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)


@pytest.mark.pain(18)
@fuzz(120)
@given(json_values, unstorable | st.text(st.characters(categories=["Cs"]), min_size=1), st.integers(0, 3), st.data())
def test_one_part_that_can_t_be_stored_is_refused_wherever_it_is(
    value: object, part: object, depth: int, data: st.DataObject
) -> None:
    for _ in range(depth):
        part = data.draw(st.sampled_from([[1, part], {"k": part}, (part,), {"a": [part]}, Pair("x", part)]))  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="the value"):
        codec.encode([value, part] if not _has_no_place(value) else part, "the value")


@fuzz(150)
@given(typed, odd_bytes)
def test_bytes_that_do_not_fit_are_refused_in_words(drawn: tuple[Any, Any], raw: bytes) -> None:
    annotation, _ = drawn
    why = refusal(lambda: codec.decode(raw, codec.decoder(annotation), "the value"), PayloadError)
    assert why == "" or why.startswith("the value does not fit")
    why = refusal(lambda: codec.check_foreign(raw, "the value"), PayloadError)
    assert why == "" or why.startswith("the value ")
    if not why:
        codec.encode(codec.decode_plain(raw), "the value")


@fuzz(25)
@given(st.integers(1, 400), st.sampled_from(["list", "dict", "mixed", "tree"]))
def test_depth_is_limited_on_both_ways(depth: int, kind: str) -> None:
    value: Any = 1
    for n in range(depth):
        value = (
            [value]
            if kind == "list" or (kind == "mixed" and n % 2)
            else Tree(1, (value,) if n else ())
            if kind == "tree"
            else {"a": value}
        )
    why = refusal(lambda: codec.encode(value, "the value"), PayloadError)
    if why:
        assert "nested deeper" in why
    else:
        codec.check_foreign(codec.encode(value, "the value"), "the value")
