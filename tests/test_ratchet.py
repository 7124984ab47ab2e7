"""The typing ratchet counts what it says and holds in both directions."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def ratchet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ratchet", Path(__file__).with_name("ratchet.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_product_keeps_to_the_recorded_counts(ratchet: ModuleType) -> None:
    recorded = json.loads(ratchet.RECORD.read_text(encoding="utf-8"))
    assert ratchet.verdict(ratchet.count(ratchet.product_modules()), recorded) == []


def test_every_way_to_say_any_is_counted(ratchet: ModuleType) -> None:
    source = (
        '"""Any docstring about Any thing."""\n'
        "import typing\nfrom typing import Any\n"
        "def f(a: Any, b: typing.Any, c: list[Any]) -> dict[str, Any]: ...  # Any comment\n"
        "x = g()  # type: ignore[no-any-return]\n"
        "y = '# type: ignore'\n"
    )
    assert ratchet.count_source(source) == {"Any": 4, "type: ignore": 1}


def test_a_higher_count_is_refused_and_a_lower_one_must_be_written_down(ratchet: ModuleType) -> None:
    recorded = {"Any": 5, "type: ignore": 2}
    assert ratchet.verdict({"Any": 5, "type: ignore": 2}, recorded) == []
    [higher] = ratchet.verdict({"Any": 6, "type: ignore": 2}, recorded)
    assert "at most 5" in higher
    [lower] = ratchet.verdict({"Any": 5, "type: ignore": 1}, recorded)
    assert "--lower" in lower
