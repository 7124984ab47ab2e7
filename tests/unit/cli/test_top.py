"""`top`: what is printed, how often Redis is asked, and what becomes of an outage. The live view is a system test's."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from unit.cli.test_glance import NOW, busy, overview

from stepwell.cli import top
from stepwell.cli.session import Session
from stepwell.core.errors import StoreUnreachable
from stepwell.core.overview import Overview


class FakeClient:
    """Gives readings from a list, the last one again and again; exceptions among them are raised."""

    def __init__(self, *readings: Overview | Exception | KeyboardInterrupt) -> None:
        self.readings = list(readings)
        self.asked: list[Overview | None] = []

    def overview(self, before: Overview | None, limit: int) -> Overview:
        self.asked.append(before)
        found = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(found, Overview):
            return found
        raise found

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made."""
    made: list[float] = []
    monkeypatch.setattr(top.time, "sleep", made.append)
    return made


@pytest.fixture
def run(run_of: Any, paused: list[float]) -> Run:
    """`run(client, *arguments)` gives the exit code, stdout and stderr."""
    return run_of(top, "top")


def test_where_no_terminal_is_one_frame_is_printed_and_nothing_is_cut(run: Run, paused: list[float]) -> None:
    client = FakeClient(busy())
    code, out, err = run(client, "--redis", "redis://:s3cret@db")
    assert (code, err) == (0, "")
    assert out.count("BACKING OFF") == 1
    assert out.count("order-") == 37
    assert "\x1b" not in out
    assert "redis://:***@db" in out
    assert "s3cret" not in out
    assert client.asked == [None, busy()], "a frame says what changes, so it needs two readings"
    assert paused == [1.0]


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_without_a_screen_gets_one_frame_and_why(
    run: Run, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setattr(Session, "on_screen", True, raising=False)
    monkeypatch.setenv("TERM", term)
    code, out, err = run(FakeClient(busy()))
    assert (code, out.count("BACKING OFF")) == (0, 1)
    assert err == "this terminal can't show a live view (TERM): one frame\n"


def test_json_once_is_one_object_of_the_documented_shape(run: Run) -> None:
    code, out, _ = run(FakeClient(busy()), "--once", "--json")
    assert (code, out.count("\n")) == (0, 1)
    found = json.loads(out)
    assert set(found) == set(Overview.__struct_fields__)
    assert found["backoffs"]["next"][0] == {
        "execution": "order-0",
        "flow": "checkout",
        "due_at": NOW + 8_200,
        "path": "charge",
        "attempt": 3,
        "max_attempts": 5,
        "error_type": "HttpError",
        "error": "503 of redis://:***@db:6379 which is a long story that goes on and on",
    }


def test_json_goes_on_with_a_line_for_each_reading(run: Run, paused: list[float]) -> None:
    client = FakeClient(busy(), busy(), overview(), KeyboardInterrupt())
    code, out, _ = run(client, "--json", "--interval", "7")
    assert code == 130
    assert [json.loads(line)["dead_letters"] for line in out.splitlines()] == [12, 0]
    assert paused == [1.0, 7.0, 7.0]


def test_who_can_t_be_asked_at_the_beginning_is_told_as_everywhere(run: Run) -> None:
    code, out, err = run(FakeClient(StoreUnreachable("no connection to Redis")), "--once")
    assert (code, out) == (2, "")
    assert err == "stepwell: no connection to Redis\n"


def test_a_large_namespace_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 4.0])
    monkeypatch.setattr(top.time, "monotonic", lambda: next(ticks))
    reader = top._Reader(FakeClient(busy()), "", 1.0)  # type: ignore[arg-type]
    assert reader.pause == 1.0
    reader.read()
    assert reader.pause == top.REST_FACTOR * 4.0


def test_a_screen_that_can_show_ascii_only_gets_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, "ascii"))
    reader: Any = top._Reader(FakeClient(busy()), "db" * 40, 1.0)  # type: ignore[arg-type]
    console = Console(force_terminal=True, width=60, height=24)
    view = top._View(Session(), console, reader, reader.read())
    with Live(view.drawn(""), console=console, screen=True, auto_refresh=False) as live:
        live.update(view.drawn(""), refresh=True)
    sys.stdout.flush()
    assert b"dbdbd~" in screen.getvalue(), "what is cut off is shown"


def test_an_outage_keeps_what_was_seen_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(top.time, "monotonic", lambda: now[0])
    client: Any = FakeClient(busy(), StoreUnreachable("no connection to Redis"), ValueError("a fault"), overview())
    reader = top._Reader(client, "db", 1.0)
    view = top._View(Session(), top._console(Session()), reader, reader.read())

    def page() -> str:
        return "\n".join(line.plain for line in view.drawn("q quits").renderables)  # type: ignore[attr-defined]

    assert "order-0" in page()
    for said in ("! this is 3 s old: no connection to Redis", "! this is 6 s old: unexpected ValueError: a fault"):
        now[0] += 3.0
        view.look()
        assert said in page()
        assert "order-0" in page()
    view.look()
    assert "order-0" not in page()
    assert "s old" not in page()
