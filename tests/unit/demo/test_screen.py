"""What the demo shows: events, and a table per step."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from stepwell.cli.bars import bars
from stepwell.demo.command import _screen
from stepwell.demo.course import Plan
from stepwell.demo.delays import measured
from stepwell.demo.evidence import Evidence, Kill
from stepwell.demo.screen import Screen


class Terminal(StringIO):
    """A stderr that a person reads."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return made


def shown(evidence: Evidence) -> str:
    out = StringIO()
    Screen(Console(file=out, width=100)).tables(evidence)
    return out.getvalue()


def cells(text: str, first: str) -> list[str]:
    [row] = [line for line in text.splitlines() if line.startswith("│") and line.split("│")[1].strip() == first]
    return [cell.strip() for cell in row.split("│")[1:-1]]


def test_a_table_tells_attempts_delays_keys_and_effects(good: Evidence) -> None:
    charge, ship = shown(good).split("ship: ")
    assert "charge: 12 steps, 34 attempts, 34 requests" in charge
    assert "12 distinct keys, 12 side effects (at most 1 per order)" in charge
    assert "12 answers lost after the effect" in charge
    assert cells(charge, "1") == ["1", "12", "", "", "", ""]
    assert cells(charge, "2") == ["2", "12", "0.100", "0.150", "0.150", "0.150"]
    assert cells(charge, "3") == ["3", "5", "0.200", "0.250", "0.250", "0.250"]
    assert cells(charge, "4") == ["4", "5", "by `retry`", "", "", ""]
    assert "12 steps, 12 attempts, 24 requests" in ship


def test_delays_that_ran_across_a_kill_or_were_asked_for_stand_apart(good: Evidence) -> None:
    first, *rest = good.requests
    changed = replace(good, requests=[replace(first, asked=5.0), *rest], kills=[*good.kills, Kill(0.3, 0.4)])
    text = shown(changed).split("ship: ")[0]
    assert "delays by Retry-After: 1 (0.150 to 0.150 s)" in text
    assert "delays during which the worker was killed: 5 (0.250 to 0.250 s)" in text
    assert cells(text, "3") == ["3", "5", "0.200", "", "", ""]
    assert {delay.floor for delay in measured(changed) if delay.asked} == {5.0}


def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("stepwell.demo.screen.time.monotonic", lambda: now[0])
    out = StringIO()
    screen = Screen(Console(file=out, width=40))
    screen.event("50 orders started, and this line is longer than the screen is wide")
    for done, seconds in ((1, 0.5), (2, 2.0), (3, 0.5), (3, 2.0)):
        now[0] += seconds
        screen.progress(done, 150, "requests 7")
    assert out.getvalue().splitlines() == [
        "   0.0 s  50 orders started, and this line is longer than the screen is wide",
        "   2.5 s  side effects 2/150, requests 7",
        "   5.0 s  side effects 3/150, requests 7",
    ]


@pytest.mark.threads  # bars have a thread of their own
def test_a_terminal_shows_a_bar_and_events_stay_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr("sys.stdout", terminal)
    with bars() as shown:
        assert shown is not None
        screen = Screen(shown.answers, shown.bar("side effects", 150))
        screen.progress(30, 150, "requests 47; orders: 12 running")
        screen.event("killed worker 1")
    text = terminal.getvalue()
    assert "side effects" in text
    assert "30/150" in text
    assert "requests 47; orders: 12 running" in text
    assert "s  killed worker 1\n" in text


@pytest.mark.threads
def test_events_go_to_stdout_where_that_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = on_a_terminal(monkeypatch)
    with bars() as shown:
        screen = _screen(Plan(), shown)
        screen.event("killed worker 1")
        screen.progress(30, Plan().effects, "requests 47")
    assert capsys.readouterr().out.endswith("s  killed worker 1\n")
    assert "killed" not in terminal.getvalue()
    assert "30/200" in terminal.getvalue()
