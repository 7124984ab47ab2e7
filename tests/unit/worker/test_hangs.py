"""A shard hangs when its box shows one turn for long, seen many times."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.actors.blackbox import BlackBox
from stepwell.worker import hangs as module
from stepwell.worker.hangs import LOOKS_MIN, Hangs


@pytest.fixture
def box(tmp_path: Path) -> BlackBox:
    return BlackBox.create(tmp_path / "box")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "monotonic", lambda: 120.0)


def looked(hangs: Hangs, path: Path, times: int = LOOKS_MIN) -> float:
    for _ in range(times):
        hangs.look(path)
    return hangs.busy_seconds(path)


def test_a_turn_is_as_long_as_the_box_says(box: BlackBox, tmp_path: Path) -> None:
    box.turn("order-7", 100.0)
    assert looked(Hangs(), tmp_path / "box") == 20.0


def test_a_turn_that_was_seen_a_few_times_only_is_none_since_the_host_may_have_slept(
    box: BlackBox, tmp_path: Path
) -> None:
    box.turn("order-7", 100.0)
    assert looked(Hangs(), tmp_path / "box", LOOKS_MIN - 1) == 0.0


def test_another_turn_begins_anew(box: BlackBox, tmp_path: Path) -> None:
    hangs = Hangs()
    box.turn("order-7", 100.0)
    assert looked(hangs, tmp_path / "box") > 0
    box.turn("order-7", 119.0)
    assert looked(hangs, tmp_path / "box", 1) == 0.0
    box.idle()
    assert looked(hangs, tmp_path / "box") == 0.0


def test_who_has_no_box_does_not_hang(tmp_path: Path) -> None:
    assert looked(Hangs(), tmp_path / "none") == 0.0
    (tmp_path / "none").write_bytes(b"nonsense")
    assert looked(Hangs(), tmp_path / "none") == 0.0


def test_one_that_is_forgotten_is_looked_at_anew(box: BlackBox, tmp_path: Path) -> None:
    hangs = Hangs()
    box.turn("order-7", 100.0)
    assert looked(hangs, tmp_path / "box") > 0
    hangs.forget(tmp_path / "box")
    assert hangs.busy_seconds(tmp_path / "box") == 0.0
