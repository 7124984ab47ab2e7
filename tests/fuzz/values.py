"""What strangers write: bytes, texts and JSON of every odd kind."""

from __future__ import annotations

import json

from hypothesis import strategies as st

DEEP = b"[" * 5000
NESTED = b'{"a":' * 300 + b"1" + b"}" * 300
BIG = b'"' + b"x" * 1_100_000 + b'"'
NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, -(10**30))

numbers = st.sampled_from(NUMBERS) | st.integers()
texts = st.text(max_size=20) | st.sampled_from(["", "\x00", "a b", "ä", "\ud800", "../..", "%s", "{}", "x" * 200])
plain_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | plain_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_texts, inner, max_size=3),
    max_leaves=8,
)
json_bytes = json_values.map(lambda value: json.dumps(value).encode())

odd_bytes = st.one_of(
    st.binary(max_size=30),
    plain_texts.map(str.encode),
    numbers.map(lambda n: str(n).encode()),
    json_bytes,
    st.sampled_from([b"", b"\x00", b"\xff\xfe", b"null", b"NaN", b"-0", b"1e999", b'"\\ud800"', DEEP, NESTED, BIG]),
)
"""Any bytes; many are almost right."""

ids = st.sampled_from(["victim", "ended", "nobody", "a" * 128, "Z.:@-_"])


def cut_short(raw: bytes) -> st.SearchStrategy[bytes]:
    """The beginning of it."""
    return st.integers(0, max(0, len(raw) - 1)).map(lambda size: raw[:size])


def damaged(raw: bytes) -> st.SearchStrategy[bytes]:
    """Something else than it was: cut short, with a byte changed, or anything."""

    def changed(draw: tuple[int, int]) -> bytes:
        place, byte = draw
        return raw[:place] + bytes([byte]) + raw[place + 1 :]

    if not raw:
        return odd_bytes
    places = st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255))
    return cut_short(raw) | places.map(changed) | odd_bytes
