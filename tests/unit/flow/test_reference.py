"""How another process finds the same step: by its name, by that of its body, or made again from its function."""

from __future__ import annotations

import copy
import pickle
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from stepwell import Retry, step
from stepwell.core.errors import DefinitionError
from stepwell.flow.reference import recipe_of


@dataclass
class Order:
    id: str


@step
def charge(order: Order) -> list[Order]:
    return [order]


late = charge.with_options(name="late", isolation="process")


class Shop:
    @step
    @staticmethod
    def pack(order: Order) -> str:
        return order.id


@pytest.mark.parametrize("found", [charge, late, Shop.pack])
def test_a_step_of_a_module_is_the_module_s_own(found: object) -> None:
    assert pickle.loads(pickle.dumps(found)) is found
    assert copy.deepcopy(found) is found


def test_a_step_with_other_options_has_the_body_of_the_module_s_own() -> None:
    policy = Retry(max_attempts=2)
    made = pickle.loads(pickle.dumps(charge.with_options(name="x", retry=policy, timeout=3, max_running=2)))
    assert made.fn is charge.fn
    assert (made.name, made.retry, made.timeout, made.max_running, made.isolation) == ("x", policy, 3, 2, "thread")


def test_a_step_made_in_a_function_is_made_again_with_its_annotations() -> None:
    @dataclass
    class Local:
        id: str

    def body(order: Local) -> Local:
        return order

    body.__annotations__ = {"order": Local, "return": Local}
    made, (fn, hints, *options) = recipe_of(step(name="inner")(body))
    assert fn is body
    again = made(fn, hints, *options)
    assert again.hints == {"order": Local, "return": Local}
    assert again.decode_result(b'{"id":"a"}') == Local("a")


@pytest.mark.parametrize("name", ["__main__", "__mp_main__", "made_up"])
def test_what_stands_in_no_module_that_can_be_imported_is_made_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec("from stepwell import step\n@step\ndef inner() -> None: ...\n", vars(module))
    _, arguments = recipe_of(module.inner)
    assert arguments[0] is module.inner.fn


def test_an_unknown_isolation_is_refused() -> None:
    with pytest.raises(DefinitionError, match="step body: expected isolation to be 'thread' or 'process', got 'fork'"):

        @step(isolation="fork")  # type: ignore[call-overload]
        def body() -> None: ...
