"""Texts of others on a line: whatever steers or is not seen is shown by its code, found by its kind in Unicode."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from stepwell.core.escapes import code_of, escaped, escaped_json

KINDS = ("Cc", "Cf", "Zl", "Zp", "Cs")
EVERY = [chr(code) for code in range(sys.maxunicode + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_that_kind_is_left(kind: str) -> None:
    found = [c for c in EVERY if unicodedata.category(c) == kind]
    for c in found:
        assert escaped(f"a{c}b") == f"a{code_of(c)}b"
        assert json.loads(escaped_json(f'"a{c}b"'), strict=True) == f"a{c}b"
    shown = escaped("".join(found)) + escaped_json("".join(found))
    assert found
    assert not {unicodedata.category(c) for c in shown} & set(KINDS)


def test_what_is_seen_stays_as_it_is() -> None:
    seen = "".join(c for c in EVERY if unicodedata.category(c)[0] in "LMNPS")
    assert escaped(seen + " ") == escaped_json(seen + " ") == seen + " "


def test_codes_are_those_that_people_know() -> None:
    assert escaped("\t\n\r\0\x1b\x9b\u200b\u2028\U000e0001") == r"\t\n\r\x00\x1b\x9b\u200b\u2028\U000e0001"
    assert escaped_json('"\x7f\u200b\U000e0001"') == r'"\u007f\u200b\udb40\udc01"'
