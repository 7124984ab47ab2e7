"""Why a command or a start could not be applied: the kinds of dead letters, a closed set."""

from __future__ import annotations

import difflib
from typing import Final, Literal, TypeAlias, get_args

from stepwell.core.errors import UsageError

__all__ = ["LETTER_KINDS", "LetterKind", "check_kind", "to_do"]

LetterKind: TypeAlias = Literal[
    "malformed", "no such execution", "not applicable", "kills its shard", "input", "id taken"
]
LETTER_KINDS: Final[tuple[str, ...]] = get_args(LetterKind)

_MEND_SENDER: Final = "mend whoever wrote it, then remove this: {drop}"
_ADVICE: Final = {
    "malformed": _MEND_SENDER,
    "no such execution": "check id and server, start the execution, then: {replay}, or {drop}",
    "not applicable": "mend what it says, then: {replay}, or {drop}",
    "kills its shard": "mend whoever wrote it, and report it as a bug: no entry should be able to; then: {drop}",
    "input": "deploy a flow that takes it, then: {replay}; or mend the sender, then: {drop}",
    "id taken": "let its sender choose another id, then: {drop}",
}


def to_do(kind: str, letter_id: str, cut: bool) -> str:
    """What a person can do about a letter; of one that was `cut` there is too little left to send it again."""
    replay, drop = f"stepwell dead replay {letter_id}", f"stepwell dead drop {letter_id}"
    if cut:
        return f"only a part of the entry is kept, which can't be replayed: {drop}"
    return _ADVICE.get(kind, "{replay}, or {drop}").format(replay=replay, drop=drop)


def check_kind(kind: str) -> str:
    """Return it if it is a kind of dead letters. Raises UsageError, which names all of them."""
    if kind not in LETTER_KINDS:
        close = difflib.get_close_matches(str(kind).lower(), LETTER_KINDS, n=1)
        hint = f"did you mean {close[0]!r}? There" if close else "there"
        raise UsageError(f"unknown reason {kind!r:.60}: {hint} are {', '.join(map(repr, LETTER_KINDS))}")
    return kind
