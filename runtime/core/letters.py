"""Why a command or a start could not be applied: the kinds of dead letters, a closed set."""

from __future__ import annotations

import difflib
from typing import Final, Literal, TypeAlias, get_args

from stepwell.core.errors import UsageError

__all__ = ["LETTER_KINDS", "LetterKind", "check_kind"]

LetterKind: TypeAlias = Literal[
    "malformed", "no such execution", "not applicable", "kills its shard", "input", "id taken"
]
LETTER_KINDS: Final[tuple[str, ...]] = get_args(LetterKind)


def check_kind(kind: str) -> str:
    """Return it if it is a kind of dead letters. Raises UsageError, which names all of them."""
    if kind not in LETTER_KINDS:
        close = difflib.get_close_matches(str(kind).lower(), LETTER_KINDS, n=1)
        hint = f"did you mean {close[0]!r}? There" if close else "there"
        raise UsageError(f"unknown reason {kind!r:.60}: {hint} are {', '.join(map(repr, LETTER_KINDS))}")
    return kind
