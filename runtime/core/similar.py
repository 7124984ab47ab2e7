"""Asks who has mistyped a name whether another one was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """`did you mean A or B?`, with the most similar ones first, `most` at most; empty where none is similar."""
    close = difflib.get_close_matches(name, list(known), n=most)
    return f"did you mean {' or '.join(close)}?" if close else ""
