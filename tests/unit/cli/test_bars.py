"""Bars: what a row says, and where there is none."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.progress import Progress, ProgressColumn

from stepwell.cli import bars as module
from stepwell.cli.bars import Bars, bars, speed_text


class Stderr(io.StringIO):
    """A stderr that is a terminal, or not."""

    def __init__(self, tty: bool = True) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


def frames(text: str) -> list[str]:
    """The rows as they were drawn, without what steers a terminal and the bar itself."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[━╸╺]", "", text)
    return [" ".join(line.split()) for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bars' clock."""
    seconds = [100.0]
    made: Callable[..., Progress] = Progress

    def clocked(*columns: ProgressColumn, **options: object) -> Progress:
        return made(*columns, get_time=lambda: seconds[0], **options)

    monkeypatch.setattr(module, "Progress", clocked)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return seconds


def test_a_row_tells_done_of_all_speed_and_time_left(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = Stderr()
    monkeypatch.setattr("sys.stderr", screen)
    with bars(ticking=False) as shown:
        assert isinstance(shown, Bars)
        bar = shown.bar("retrying", 1_200)
        for _ in range(3):
            now[0] += 2.0
            bar.step()
        bar.reach(600, "a note")
    assert frames(screen.getvalue())[-1] == "retrying 600/1,200 150/s 0:00:05 a note"
    assert "retrying 3/1,200 30/min 0:39:54" in frames(screen.getvalue())


def test_a_row_that_begins_anew_forgets_what_was(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = Stderr()
    monkeypatch.setattr("sys.stderr", screen)
    with bars(ticking=False) as shown:
        assert shown is not None
        bar = shown.bar("history", 4)
        now[0] += 1.0
        bar.step()
        bar.again("sweep", 36)
    assert frames(screen.getvalue())[-1] == "sweep 0/36 -:--:--"


def test_a_row_that_does_not_count_shows_no_numbers(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    screen = Stderr()
    monkeypatch.setattr("sys.stderr", screen)
    with bars(ticking=False) as shown:
        assert shown is not None
        bar = shown.bar("all", 100.0, counts=False)
        for done in (10.0, 20.0):
            now[0] += 5.0
            bar.reach(done, "2 of 13")
    assert frames(screen.getvalue())[-1] == "all 0:00:40 2 of 13"


def test_a_bar_that_does_not_tick_has_no_thread(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    import threading

    monkeypatch.setattr("sys.stderr", Stderr())
    before = set(threading.enumerate())
    with bars(ticking=False):
        assert set(threading.enumerate()) <= before


def test_there_are_none_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Stderr(tty=False)
    monkeypatch.setattr("sys.stderr", screen)
    with bars() as shown:
        assert shown is None
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("speed", "text"),
    [(1234.4, "1,234/s"), (10.0, "10/s"), (4.24, "4.2/s"), (0.5, "30/min"), (0.02, "1.2/min"), (0.0, "0.0/min")],
)
def test_a_speed_has_the_unit_that_fits(speed: float, text: str) -> None:
    assert speed_text(speed) == text
