"""What says that it is of a newer format, and what only looks like it."""

from __future__ import annotations

import pytest

from stepwell.core.formats import FORMAT, entry_format, row_format
from stepwell.core.ownership import newest


@pytest.mark.pain(47)
@pytest.mark.parametrize(
    ("raw", "found"),
    [(b"1", 1), (b"2", 2), (b"999", 999), (b"1000", None), (b"02", None), (b"", None), (b"-1", None), (b"\xb2", None)],
)
def test_an_entry_says_its_format_or_garbage(raw: bytes, found: int | None) -> None:
    assert entry_format({"v": raw}) == found


def test_an_entry_that_says_nothing_has_the_first_format() -> None:
    assert entry_format({"type": b"cancel"}) == 1


@pytest.mark.pain(47)
@pytest.mark.parametrize(
    ("meta", "found"),
    [
        (b'{"format":2,"flow":["of","another","layout"]}', 2),
        (b'{"flow":"f"}', 1),
        (b'{"format":1000}', FORMAT),
        (b'{"format":"2"}', FORMAT),
        (b"[2]", FORMAT),
        (b"\xff", FORMAT),
    ],
)
def test_the_format_of_a_row_is_read_whatever_else_is_in_it(meta: bytes, found: int) -> None:
    assert row_format({"meta": meta}) == found


def test_a_row_without_facts_is_damaged_and_not_newer() -> None:
    assert row_format({}) == FORMAT


@pytest.mark.pain(47)
def test_partitions_are_shared_among_those_that_read_most() -> None:
    assert newest({"a": 1, "b": 1}) == {"a", "b"}
    assert newest({"a": 1, "b": 3, "c": 2, "d": 3}) == {"b", "d"}
    assert newest({}) == frozenset()
