"""Who reads a damaged row says what is wrong with it: view, timeline, checkpoint, a machine that goes on."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping

import pytest
from fuzz.budget import fuzz
from fuzz.rows import Damage, damage_to, damaged_row
from fuzz.worlds import FLOWS, course, doomed, fuzz_world
from hypothesis import given
from hypothesis import strategies as st

from stepwell.cli.session import plain
from stepwell.cli.timeline import timeline
from stepwell.core import row
from stepwell.core.checkpoint import Checkpoint, oldest_first
from stepwell.core.inputs import AttemptSucceeded, CancelAsked, Input, ParkAsked, RetryAsked, SignalSent, TimerFired
from stepwell.core.row import UnreadableRow
from stepwell.core.status import PARKED, STATUSES
from stepwell.core.view import view
from stepwell.flow.machine import Machine

VICTIM = "victim"
SECRET = bytes(range(32))
NOW = 1_700_000_020_000


@functools.cache
def rows() -> tuple[Mapping[str, bytes], ...]:
    """Rows as they stand at many moments of two courses."""
    found = []
    for flow in (course, doomed):
        with fuzz_world() as world:
            world.shard()
            world.start(flow, VICTIM)
            for second in range(16):
                if second == 9:
                    world.signal(VICTIM, "last", {"a": [1]})
                if second == 12:
                    world.retry(VICTIM)
                if second == 13:
                    world.signal(VICTIM, "word", "x")
                found.append(world.row(VICTIM))
                world.run_for(1)
    return tuple(found)


@st.composite
def damaged_rows(draw: st.DrawFn) -> dict[str, bytes]:
    fields = draw(st.sampled_from(range(len(rows()))))
    return damaged_row(rows()[fields], draw(st.lists(damage_to(rows()[fields]), min_size=1, max_size=3)))


def why_unreadable(fields: dict[str, bytes]) -> str:
    try:
        row.parse(VICTIM, fields, SECRET)
    except UnreadableRow as error:
        return str(error)
    return ""


@pytest.mark.pain(16)
@fuzz(800)
@given(damaged_rows())
def test_a_damaged_row_can_always_be_shown(fields: dict[str, bytes]) -> None:
    shown = view(VICTIM, fields)
    json.dumps(shown)
    for width in (40, 200):
        lines = [plain(line) for line in timeline(shown, NOW, width, True)]
        assert lines
    assert len(why_unreadable(fields)) < 2000


events = st.sampled_from(
    [
        RetryAsked(NOW, "c1"),
        CancelAsked(NOW, "c2"),
        SignalSent(NOW, "c3", "word", b"1"),
        SignalSent(NOW, "c4", "last", b"[2]"),
        TimerFired(NOW, "sleep"),
        TimerFired(NOW, "gather.0/toil"),
        AttemptSucceeded(NOW, "toil", 1, NOW - 5, NOW, b"1"),
        AttemptSucceeded(NOW, "gather.0/toil", 2, NOW - 5, NOW, b"1"),
        ParkAsked(NOW, "crashed", "by hand"),
    ]
)


def check_written(cp: Checkpoint) -> None:
    """What the machine would write is a row that can be read again, and says what the checkpoint says."""
    assert cp.status in STATUSES
    assert not (cp.terminal and cp.open)
    fields = {**dict(row.fields_of(cp)), "status": cp.status.encode(), "rev": str(cp.rev).encode()}
    again = row.parse(VICTIM, fields, SECRET)
    assert dict(row.fields_of(again)) == dict(row.fields_of(cp))


@pytest.mark.pain(16, 34)
@fuzz(600)
@given(damaged_rows(), st.booleans(), st.lists(events, max_size=6))
def test_a_machine_over_a_damaged_row_parks_or_goes_on(fields: dict[str, bytes], clean: bool, fed: list[Input]) -> None:
    try:
        cp = row.parse(VICTIM, fields, SECRET)
    except UnreadableRow:
        return
    if cp.status != PARKED:
        fed = [*fed, ParkAsked(NOW, "crashed", "by hand")]
    machine = Machine({flow.name: flow for flow in FLOWS}.get(cp.meta.flow, course), cp)
    recorded = {path for path, _ in _facts(cp)}
    machine.start(NOW, clean)
    for each in fed:
        check_written(machine.checkpoint)
        machine.feed(each)
    check_written(machine.checkpoint)
    assert machine.checkpoint.terminal or cp.status == PARKED or machine.checkpoint.error is not None
    if not any(isinstance(each, RetryAsked) for each in fed):
        assert recorded <= {path for path, _ in _facts(machine.checkpoint)}
    machine.close()


def _facts(cp: Checkpoint) -> list[tuple[str, bytes]]:
    return oldest_first(cp.facts)


OTHER_TOKEN = b'{"kind":"step","status":"running","token":"00","declared_at":5,"name":"toil","attempt":1}'
ATTEMPT = b'{"n":1,"ended_at":5,"error":{"type":"E","message":"m"}}'
FACT = b'{"seq":9,"token":"00","declared_at":5,"ended_at":5,"value":%b}'
FOUND = {
    "ended, and yet something is open": (Damage("status", b"completed"), "is open"),
    "in error, and no error": (Damage("status", b"error"), "is open"),
    "another token": (Damage("p:toil", OTHER_TOKEN), "token"),
    "a time that no calendar has": (Damage("started_at", b"9007199254740993"), "whole number"),
    "a revision that Redis would not find": (Damage("rev", b"05"), "whole number"),
    "an attempt without a number": (Damage("a:", ATTEMPT), "attempt 1"),
    "a signal without a number": (Damage("s:\u00b2", b'{"name":"a","payload":1,"at":5}'), "whole number"),
    "a status that there is not": (Damage("p:toil", OTHER_TOKEN.replace(b"running", b"gone")), "status"),
    "fewer than no attempts": (Damage("p:toil", OTHER_TOKEN.replace(b":1}", b":-1}")), "attempt"),
}
UNSHOWN = {
    "a value that is no text": Damage("r:x", FACT % b'"\xff"'),
    "a value nested too deeply": Damage("r:x", FACT % (b"[" * 900 + b"]" * 900)),
    "a signal that is no text": Damage("s:1", b'{"name":"a","payload":"\xff","at":5}'),
    "an input nested too deeply": Damage("input", b"[" * 900 + b"]" * 900),
    "a signal without a number": Damage("s:\u00b2", b'{"name":"a","payload":1,"at":5}'),
}


@pytest.mark.pain(16)
@pytest.mark.parametrize("found", FOUND)
def test_what_no_rule_writes_is_refused_by_name(found: str) -> None:
    damage, said = FOUND[found]
    assert rows()[2]["status"] == b"waiting"
    assert said in why_unreadable(damaged_row(rows()[2], [damage]))


@pytest.mark.pain(16)
@pytest.mark.parametrize("found", UNSHOWN)
def test_what_can_t_be_shown_is_named(found: str) -> None:
    fields = damaged_row(rows()[2], [UNSHOWN[found]])
    shown = view(VICTIM, fields)
    assert UNSHOWN[found].field in shown["unreadable"]
    json.dumps(shown)


@pytest.mark.pain(16)
def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    shown = view(VICTIM, damaged_row(rows()[2], [Damage("updated_at", b"9007199254740993"), Damage("meta", None)]))
    shown["created_at"] = 9007199254740993
    assert any("9007199254740993 ms" in plain(line) for line in timeline(shown, NOW, 100))
