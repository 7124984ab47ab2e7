"""Cursors are opaque, short, and never taken for what they are not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.cursor import Cursor, decode_cursor, digest_of, encode_cursor
from stepwell.core.errors import UsageError

cursors = st.builds(
    Cursor,
    digest=st.text("0123456789abcdef", min_size=8, max_size=8),
    choice=st.sampled_from(["s", "e", "f", "a0", "a15"]),
    at_ms=st.integers(0, 253_402_300_799_999),
    execution_id=st.text("abcXYZ019_.:@-", min_size=1, max_size=128),
    since_ms=st.none() | st.integers(0, 253_402_300_799_999),
)


@given(cursors)
def test_a_cursor_comes_back_as_it_was(cursor):
    text = encode_cursor(cursor)
    assert decode_cursor(text) == cursor
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert len(text) <= 60 + 2 * len(cursor.execution_id)


@given(st.text() | st.text("ABCabc019-_=", max_size=80))
def test_garbage_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError, match="no cursor of a listing"):
        decode_cursor(text)


@given(cursors, st.data())
def test_a_cursor_that_lost_a_piece_is_refused_or_another_one(cursor, data):
    text = encode_cursor(cursor)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(UsageError):
        decode_cursor(text[:cut])


def test_listings_differ_in_their_digests():
    assert digest_of(("error", "a")) == digest_of(("error", "a"))
    assert len({digest_of((status, flow)) for status in ("error", None) for flow in ("a", "b", None)}) == 6
