"""What the demo shows: events, and a table per step."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from stepwell.demo.delays import measured
from stepwell.demo.evidence import Evidence, Kill
from stepwell.demo.screen import Screen


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
    assert "1 delays by Retry-After (0.150 to 0.150 s)" in text
    assert "5 delays during which the worker was killed (0.250 to 0.250 s)" in text
    assert cells(text, "3") == ["3", "5", "0.200", "", "", ""]
    assert {delay.floor for delay in measured(changed) if delay.asked} == {5.0}


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    out = StringIO()
    screen = Screen(Console(file=out, width=40))
    screen.event("50 orders started, and this line is longer than the screen is wide")
    screen.progress("1 of 2")
    screen.rest()
    assert out.getvalue().endswith("s  50 orders started, and this line is longer than the screen is wide\n")
