"""The arguments of a call as JSON and back: as they are annotated, or an error that names the argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stepwell import step
from stepwell.core.errors import DefinitionError, PayloadError
from stepwell.flow import arguments
from stepwell.flow.arguments import pack, travels, unpack
from stepwell.flow.operations import StepCall


@dataclass
class Order:
    id: str
    tags: set[str] = field(default_factory=set)


@step
def take(order: Order, /, count: int, *rest: Order, note: bytes = b"", **more: Order) -> None: ...


@step
def plain(*args: Any, **kwargs: Any) -> None: ...


@step
def odd(many: list[int] | set[int]) -> None: ...


def call(of: Any, *args: object, **kwargs: object) -> StepCall[object]:
    return StepCall(of, args, kwargs)


def passed(made: StepCall[object]) -> tuple[list[object], dict[str, object]]:
    return unpack(pack(made), made.step)


def test_each_argument_comes_as_its_parameter_is_annotated() -> None:
    a = Order("a", {"x"})
    assert passed(call(take, a, 2, a, note=b"\x00", other=a)) == ([a, 2, a], {"note": b"\x00", "other": a})
    assert passed(call(take, a, count=2)) == ([a], {"count": 2})


def test_without_an_annotation_it_is_plain_json() -> None:
    assert passed(call(plain, (1, 2), at=Order("a"))) == ([[1, 2]], {"at": {"id": "a", "tags": []}})


def test_what_has_no_parameter_is_plain_and_left_to_the_call() -> None:
    @step
    def nothing() -> None: ...

    assert passed(call(nothing, 1, x=2)) == ([1], {"x": 2})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call(plain, 1, object()), r"^argument 2 of step plain can't be passed to a process of its own: \$ is of type"),
        (call(plain, at={"x": object()}), r"^argument 'at' of step plain can't be passed .*: \$\['x'\] is of type"),
    ],
)
def test_what_is_no_json_is_named(made: StepCall[object], said: str) -> None:
    with pytest.raises(PayloadError, match=said):
        pack(made)


def test_a_huge_argument_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "ARGUMENT_BYTES_MAX", 10)
    with pytest.raises(PayloadError, match="argument 1 of step plain is too large: 13 bytes, the limit is 10"):
        pack(call(plain, "x" * 11))


def test_what_does_not_fit_its_annotation_is_named() -> None:
    with pytest.raises(PayloadError, match="argument 'count' of step take does not fit: Expected `int`, got `str`"):
        passed(call(take, Order("a"), count="two"))


def test_an_annotation_that_no_json_can_become_is_named() -> None:
    with pytest.raises(DefinitionError, match="step odd: its parameter 'many' is annotated as"):
        passed(call(odd, 1))


class Vague:
    """Equal to everything, and nothing that comes back."""

    def model_dump(self, mode: str) -> dict[str, int]:
        return {}

    def __eq__(self, other: object) -> bool:
        raise ValueError("ask somebody else")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("made", "does"),
    [
        (call(plain, 1, "a", None, [1.5, {"a": [True]}]), True),
        (call(take, Order("a", {"x"}), 1), True),
        (call(plain, (1, 2)), False),
        (call(plain, [(1, 2)]), False),
        (call(plain, at={"x": (1,)}), False),
        (call(plain, Order("a")), False),
        (call(plain, 1, True), True),
        (call(take, Order("a"), True), False),
        (call(plain, Vague()), False),
    ],
)
def test_a_call_travels_if_the_body_gets_what_the_flow_passed(made: StepCall[object], does: bool) -> None:
    assert travels(made, pack(made)) is does
