"""Entries of the events streams: known events, those of newer versions, and garbage."""

from __future__ import annotations

import pytest

from stepwell.core import events
from stepwell.core.eventlog import RawEvent, execution_of, fields_of, kind_of, read_events
from stepwell.core.records import encode

PARKED = events.ExecutionParked("e1", "checkout", "crashed", "KeyError", 1)


def test_what_was_written_comes_back_typed() -> None:
    assert read_events(encode([PARKED, PARKED])) == (PARKED, PARKED)


def test_a_kind_of_a_newer_version_is_shown_as_it_stands_beside_those_that_are_known() -> None:
    raw = b'[{"type":"MoonRose","execution_id":"e2","phase":3},' + encode(PARKED) + b"]"
    newer, known = read_events(raw)
    assert newer == RawEvent("MoonRose", {"execution_id": "e2", "phase": 3})
    assert known == PARKED
    assert [execution_of(newer), execution_of(known)] == ["e2", "e1"]
    assert [kind_of(newer), kind_of(known)] == ["MoonRose", "ExecutionParked"]
    assert fields_of(known)["reason"] == "crashed"


def test_a_known_kind_with_other_fields_is_shown_as_it_stands() -> None:
    (found,) = read_events(b'[{"type":"ExecutionParked","execution_id":7}]')
    assert found == RawEvent("ExecutionParked", {"execution_id": 7})
    assert execution_of(found) == ""


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xfe", b"{}", b"[1]", b'["x"]', b"[null]", b"7", b"[" * 5000, b"[" + b"[" * 900 + b"]" * 900 + b"]"],
)
def test_garbage_is_told_and_never_raises(raw: bytes) -> None:
    for found in read_events(raw):
        assert isinstance(found, RawEvent)
        assert kind_of(found) == "garbage"
        assert execution_of(found) == ""


def test_garbage_is_not_cut_within_a_password() -> None:
    (found,) = read_events(180 * b"x" + b" https://user:s3cret@bank.invalid/")
    assert len(str(fields_of(found)["text"])) == 200
    assert "s3c" not in str(fields_of(found)["text"])
