"""The raw log: one effect per key, whatever the order and step; every request is there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from stepwell.demo.ledger import Effect, Ledger, Request, Tally, read_effects, read_requests, tally


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    ticks = count(1)
    opened = Ledger(path, lambda: float(next(ticks)))
    yield opened
    opened.close()


def test_the_same_key_has_one_effect_and_the_same_receipt(ledger: Ledger, path: Path) -> None:
    first, _ = ledger.arrived("a", "charge", "k", 1)
    second, _ = ledger.arrived("a", "charge", "k", 2)
    receipt = ledger.effect(first, "a", "charge", "k")
    assert ledger.effect(second, "a", "charge", "k") == receipt
    assert read_effects(path) == [Effect("a", "charge", "k", receipt)]
    assert [request.recorded for request in read_requests(path)] == [True, False]


def test_another_key_has_another_effect_even_for_the_same_step(ledger: Ledger, path: Path) -> None:
    for number, key in enumerate(("k1", "k2", "", ""), 1):
        request, earlier = ledger.arrived("a", "charge", key, number)
        assert earlier == number - 1
        ledger.effect(request, "a", "charge", key)
    assert [effect.key for effect in read_effects(path)] == ["k1", "k2", "", ""]


def test_a_request_is_logged_when_it_comes_and_when_it_is_answered(ledger: Ledger, path: Path) -> None:
    request, _ = ledger.arrived("a", "ship", "k", 3)
    assert read_requests(path) == [Request(1.0, None, "a", "ship", "k", 3, "", False)]
    ledger.ended(request, "503", 1.0)
    assert read_requests(path) == [Request(1.0, 2.0, "a", "ship", "k", 3, "503", False, 1.0)]


def test_only_a_reset_that_recorded_something_is_counted(ledger: Ledger, path: Path) -> None:
    for attempt in (1, 2):
        request, _ = ledger.arrived("a", "ship", "k", attempt)
        ledger.effect(request, "a", "ship", "k")
        ledger.ended(request, "reset")
    assert [request.reset_after_recording for request in read_requests(path)] == [True, False]
    assert tally(path) == Tally(requests=2, effects=1, resets=1)
