"""`InputModel.check`: the judgement of an input by a thread that must not run what users wrote."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import pytest

from stepwell.core.errors import InvalidInput
from stepwell.flow.signature import InputModel


@dataclass
class Plain:
    name: str
    tags: list[str] = field(default_factory=list)
    inner: Plain | None = None


@dataclass
class Checks:
    name: str

    def __post_init__(self) -> None:
        raise AssertionError("this must not run")


@dataclass
class Holds:
    inner: list[Checks]


@dataclass
class Makes:
    name: str = field(default_factory=lambda: pytest.fail("this must not run"))


class Model:
    """As a pydantic model looks."""

    @classmethod
    def model_validate(cls, value: object) -> Model:
        raise AssertionError("this must not run")


class Lenient(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise AssertionError("this must not run")


def model(annotation: Any) -> InputModel:
    async def fn(value: Any, times: int = 1) -> None: ...

    fn.__annotations__ = {"value": annotation, "times": int}
    return InputModel("f", fn)


@pytest.mark.parametrize(
    ("annotation", "raw"),
    [
        (Plain, b'{"value":{"name":7}}'),
        (list[Plain], b'{"value":[{"name":"a","inner":{"name":1}}]}'),
        (dict[str, int], b'{"value":{"a":"b"}}'),
        (int, b'{"value":"x"}'),
        (Any, b'{"value":1,"times":"many"}'),
        (object, b'{"value":1,"times":null}'),
        (Checks, b"{}"),
        (Checks, b'{"value":1,"colour":2}'),
        (int, b"[]"),
        (int, b"{"),
        (int, b"[" * 100_000),
    ],
)
def test_what_does_not_fit_is_told(annotation: Any, raw: bytes) -> None:
    with pytest.raises(InvalidInput):
        model(annotation).check(raw)


@pytest.mark.parametrize(
    "annotation", [Checks, Holds, list[Checks], Checks | None, Makes, Model, dict[str, Model], Lenient]
)
def test_types_with_code_of_their_own_are_judged_by_their_names_alone(annotation: Any) -> None:
    model(annotation).check(b'{"value":{"any":"thing"}}')


def test_what_fits_passes() -> None:
    checked = model(Plain)
    for _ in range(2):
        checked.check(b'{"value":{"name":"a","inner":{"name":"b"}},"times":2}')
