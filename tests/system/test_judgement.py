"""What storms and journals are judged by, on entries that are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from system.support.journal import Journal
from system.support.storm import Sleep, overslept_by


def entry(pid: int, at_ms: float) -> dict[str, Any]:
    return {"pid": pid, "at_ms": at_ms}


def test_a_line_of_the_journal_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.entries() == []
    whole = json.dumps({"n": 1}) + "\n"
    for shown in range(len(whole)):
        journal.file.write_text(whole + whole[:shown])
        assert journal.entries() == [{"n": 1}]


def test_of_a_process_that_was_stopped_only_the_first_body_afterwards_may_be_late() -> None:
    before, other, first, second = entry(7, 99.0), entry(8, 150.0), entry(7, 200.0), entry(7, 201.0)
    found = overslept_by([Sleep(frozenset({7}), 100.0)], [before, other, first, second])
    assert [id(each) for each in found] == [id(first)]


def test_each_process_and_each_of_its_sleeps_has_a_first_body_of_its_own() -> None:
    entries = [entry(7, 200.0), entry(9, 201.0), entry(7, 300.0), entry(7, 500.0), entry(9, 501.0)]
    found = overslept_by([Sleep(frozenset({7, 9}), 100.0), Sleep(frozenset({7}), 400.0)], entries)
    assert [each["at_ms"] for each in found] == [200.0, 201.0, 500.0]
