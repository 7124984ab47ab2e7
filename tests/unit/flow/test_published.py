"""What workers publish of parameters: it refuses nothing that the flow's code would take."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.errors import InvalidInput
from stepwell.flow.published import kinds_of, unfit
from stepwell.flow.signature import InputModel


@dataclass
class Order:
    id: str


class Place(NamedTuple):
    x: int


class Line(TypedDict):
    n: int


class Packed(msgspec.Struct, array_like=True):
    n: int


class Colour(enum.Enum):
    RED = 1


Cents = NewType("Cents", int)


class Odd:
    """Whose annotation can't be looked at."""

    def __repr__(self) -> str:
        return "Odd()"

    @property
    def __origin__(self) -> object:
        raise RuntimeError("code of the annotated type")


KNOWN: dict[Any, tuple[str, ...]] = {
    int: ("int",),
    float: ("float",),
    bool: ("bool",),
    str: ("str",),
    None: ("null",),
    Cents: ("int",),
    Annotated[int, msgspec.Meta(ge=1)]: ("int",),
    int | None: ("int", "null"),
    float | int | str: ("float", "int", "str"),
    list: ("array",),
    list[int]: ("array",),
    Sequence[str] | None: ("array", "null"),
    set[int]: ("array",),
    tuple[int, ...]: ("array",),
    tuple[int, str]: ("array",),
    dict: ("object",),
    Mapping[str, int]: ("object",),
    Line: ("object",),
    Order: ("object",),
    Order | str | None: ("object", "str", "null"),
}
UNKNOWN = (Any, object, bytes, datetime.datetime, Colour, Literal["a", 1], Place, Packed, int | bytes, Odd, Odd())


@pytest.mark.parametrize("annotation", KNOWN, ids=str)
def test_kinds_are_told_where_they_are_plain(annotation: Any) -> None:
    assert sorted(kinds_of(annotation)) == sorted(KNOWN[annotation])


@pytest.mark.parametrize("annotation", UNKNOWN, ids=str)
def test_of_any_other_type_nothing_is_told(annotation: Any) -> None:
    assert kinds_of(annotation) == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "n", "x"]), inner, max_size=2),
    max_leaves=3,
)


@given(st.sampled_from([each for each in (*KNOWN, *UNKNOWN) if not isinstance(each, Odd) and each is not Odd]), VALUES)
def test_what_is_refused_by_its_kind_the_flow_s_code_refuses_too(annotation: Any, value: object) -> None:
    async def fn(n: Any) -> None: ...

    fn.__annotations__ = {"n": annotation}
    model = InputModel("f", fn)
    model.prepare()
    published = msgspec.json.decode(msgspec.json.encode(model.offer()))
    problem = unfit("f", published["types"], {"n": value})
    if problem:
        with pytest.raises(InvalidInput):
            model.encode({"n": value})


@pytest.mark.parametrize("published", [{}, {"n": []}, {"n": 1}, {"n": "int"}, {"n": ["int", "word"]}, {"n": [["int"]]}])
def test_what_is_not_understood_is_held_against_nobody(published: dict[str, object]) -> None:
    assert unfit("f", published, {"n": "x"}) == ""
