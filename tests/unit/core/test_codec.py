"""Payloads: what comes back as it went in, and what is refused with type, place and size."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core import codec
from stepwell.core.errors import PayloadError


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Holder:
    what: object


@dataclasses.dataclass(frozen=True)
class Order:
    id: uuid.UUID
    lines: list[Line]
    tags: frozenset[str]
    at: dt.datetime
    total: decimal.Decimal
    blob: bytes
    colour: Colour
    size: tuple[int, int]
    note: str | None = None


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    fast: bool


class Model:
    """Looks like a pydantic model."""

    def __init__(self, **data: Any) -> None:
        self.data = data

    def model_dump(self, mode: str = "python") -> dict[str, Any]:
        assert mode == "json"
        return self.data

    @classmethod
    def model_validate(cls, value: object) -> Model:
        if not isinstance(value, dict) or "n" not in value:
            raise ValueError("n is missing")
        return cls(**value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.data == self.data

    def __hash__(self) -> int:
        return hash(repr(self.data))


ORDER = Order(
    id=uuid.UUID(int=7),
    lines=[Line("a"), Line("b", 2)],
    tags=frozenset({"x", "y"}),
    at=dt.datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC),
    total=decimal.Decimal("10.10"),
    blob=b"\x00\xff",
    colour=Colour.RED,
    size=(3, 4),
)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (ORDER, Order),
        ([ORDER], list[Order]),
        ({"k": (1, "a")}, dict[str, tuple[int, str]]),
        ({1, 2}, set[int]),
        ((1, 2, 3), tuple[int, ...]),
        (Colour.RED, Colour),
        (b"\x00", bytes),
        (dt.date(2030, 1, 2), dt.date),
        (dt.timedelta(hours=1), dt.timedelta),
        (Point(1, 2), Point),
        ({"fast": True}, Options),
        ({1: "a"}, dict[int, str]),
        (Model(n=1, more=[1]), Model),
        ([Model(n=1)], list[Model]),
        (None, None),
        (None, int | None),
        (1.5, float),
        (2**70, int),
        ({"a": [1, None, "x", {"b": True}]}, Any),
    ],
    ids=lambda v: getattr(v, "__name__", str(v))[:30],
)
def test_a_value_comes_back_as_it_is_annotated(value: object, annotation: Any) -> None:
    raw = codec.encode(value, "it")
    back = codec.decode(raw, codec.decoder(annotation), "it")
    assert back == value
    assert type(back) is type(value)


def test_without_an_annotation_plain_json_comes_back() -> None:
    plain = codec.decode_plain(codec.encode(ORDER, "it"))
    assert plain["size"] == [3, 4]
    assert plain["blob"] == "AP8="
    assert plain["lines"] == [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_plain_value_comes_back(value: object) -> None:
    assert codec.decode_plain(codec.encode(value, "it")) == value


class Opaque:
    pass


class Bomb:
    def model_dump(self, mode: str) -> object:
        raise KeyError("broken model")


def nested(depth: int, core: object = 1) -> object:
    for _ in range(depth):
        core = [core]
    return core


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Opaque(), r"\$ is of type Opaque"),
        ({"a": [1, {"b": Opaque()}]}, r"\$\['a'\]\[1\]\['b'\] is of type Opaque"),
        ([Holder(Opaque())], r"\$\[0\]\.what is of type Opaque"),
        ({"s": {1, Opaque()}}, r"\$\['s'\]\{\.\.\.\} is of type Opaque"),
        ([lambda: None], r"\$\[0\] is of type function"),
        ([Bomb()], r"\$\[0\] is of type Bomb.*broken model"),
        (["ok", "\ud800"], r"\$\[1\] is of type str.*surrogates"),
        ({"x": float("nan")}, r"\$\['x'\] is NaN or infinite"),
        ([1.0, [float("-inf")]], r"\$\[1\]\[0\] is NaN or infinite"),
        (Holder(float("inf")), r"\$\.what is NaN or infinite"),
        (nested(150, float("nan")), "is NaN or infinite"),
        (nested(codec.NESTING_MAX + 1), "nested deeper than 200 levels"),
        (nested(100_000), "nested deeper than 200 levels"),
    ],
    ids=lambda v: str(v)[:30] if isinstance(v, str) else None,
)
def test_what_json_can_not_hold_is_refused_with_its_place(value: object, told: str) -> None:
    with pytest.raises(PayloadError, match=f"the result of step x can't be stored: .*{told}"):
        codec.encode(value, "the result of step x")


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(PayloadError, match="nested deeper"):
        codec.encode(loop, "it")


def test_nesting_up_to_the_limit_and_brackets_in_text_are_fine() -> None:
    for value in (nested(codec.NESTING_MAX), ['[{"\\' * 500], [[1]] * 5000):
        assert codec.decode_plain(codec.encode(value, "it")) == value


def test_a_payload_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(PayloadError, match=r"too large: 1,048,579 bytes, the limit is 1,048,576"):
        codec.encode("x" * (1024 * 1024 + 1), "it")
    assert len(codec.encode("x" * (1024 * 1024 - 2), "it")) == codec.PAYLOAD_BYTES_MAX


@dataclasses.dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        raise LookupError("never content")


@pytest.mark.parametrize(
    ("raw", "annotation", "told"),
    [
        (b'{"sku":1}', Line, r"\$\.sku"),
        (b'[{"sku":"a","count":"many"}]', list[Line], r"\$\[0\]\.count"),
        (b'{"m":1}', Model, "n is missing"),
        (b'{"n":1}', Picky, "never content"),
        (b"{oops", Any, "malformed"),
        (b"[" * 100_000, Any, "recursion"),
        (b'"blue"', Colour, "blue"),
    ],
)
def test_what_does_not_fit_the_annotation_is_refused_with_its_place(raw: bytes, annotation: Any, told: str) -> None:
    with pytest.raises(PayloadError, match=f"the result of step x does not fit: .*{told}"):
        codec.decode(raw, codec.decoder(annotation), "the result of step x")


def test_an_annotation_that_no_payload_can_have_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        codec.decoder(dict[list[int], int] | set[Line] | list[int])


def test_equal_inputs_have_equal_canonical_bytes() -> None:
    assert codec.canonical({"b": 1, "a": {"d": 1, "c": 2}}, "it") == codec.canonical(
        {"a": {"c": 2, "d": 1}, "b": 1}, ""
    )
    assert codec.canonical({"a": 1}, "it") != codec.canonical({"a": "1"}, "it")


def test_a_recorded_payload_is_spliced_into_rows_as_it_is() -> None:
    raw = msgspec.Raw(codec.encode({"x": 1}, "it"))
    assert codec.decode_plain(raw) == {"x": 1}
