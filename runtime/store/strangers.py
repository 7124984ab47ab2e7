"""Keys of ours in whose places others have put something: which they are, what belongs there, and what to do.

Redis says WRONGTYPE and not of which key; of a script not even of which command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError

from stepwell.store.replies import Broken, Failure, failure, text
from stepwell.store.requests import Command
from stepwell.store.slots import key_of

__all__ = [
    "FAMILIES",
    "Family",
    "candidates",
    "family_of",
    "is_wrong_type",
    "keys_of",
    "named_each",
    "told",
    "type_commands",
]


@dataclass(frozen=True, slots=True)
class Family:
    """Keys of one kind: a Redis type, and what they hold, for people."""

    kind: str
    holds: str


_OWN: Final = r"[^{}:]+"
FAMILIES: Final[Mapping[str, Family]] = {
    rf"{_OWN}:meta": Family("hash", "the facts of the namespace"),
    rf"{_OWN}:workers": Family("hash", "the workers' signs of life"),
    rf"{_OWN}:shards": Family("hash", "the shards' signs of life"),
    rf"{_OWN}:vitals": Family("hash", "what shards tell of themselves"),
    rf"{_OWN}:ingress": Family("stream", "what programs without a client ask for"),
    rf"{_OWN}:code:.*": Family("string", "the code of a flow"),
    r"{[^{}:]+:ingress}:dead": Family("stream", "dead letters of the ingress"),
    r"{[^{}]+}:x:.*": Family("hash", "an execution"),
    r"{[^{}]+}:(inbox|outbox)": Family("stream", "commands that are not applied yet"),
    r"{[^{}]+}:(live|(by|flow|attr|error):.*)": Family("zset", "a list of executions"),
    r"{[^{}]+}:backoff": Family("set", "the flows of which steps back off"),
    r"{[^{}]+}:backoff:.*": Family("zset", "the steps of a flow that back off"),
    r"{[^{}]+}:(lease|epoch)": Family("string", "who may write the partition"),
    r"{[^{}]+}:seq": Family("string", "a count of commits"),
    r"{[^{}]+}:cmd:.*": Family("hash", "the outcome of a command"),
    r"{[^{}]+}:suspects": Family("hash", "what was at work when a shard died"),
    r"{[^{}]+}:dead": Family("stream", "dead letters"),
    r"{[^{}]+}:events": Family("stream", "events"),
}
"""By a pattern of their names."""
_PATTERNS: Final = [(re.compile(pattern, re.DOTALL), family) for pattern, family in FAMILIES.items()]
_KINDS: Final = {"zset": "sorted set"}
_SCRIPTS: Final = frozenset({"EVALSHA", "EVAL", "EVALSHA_RO", "EVAL_RO"})
_NAMED_MAX: Final = 5
_WRONG_TYPE: Final = "WRONGTYPE"


def family_of(key: str) -> Family | None:
    """What a key of ours holds; None for a name that we don't build."""
    return next((family for pattern, family in _PATTERNS if pattern.fullmatch(key)), None)


def is_wrong_type(raw: object) -> bool:
    """Whether a reply says that a key is of another type than ours."""
    wrong = failure(raw) if isinstance(raw, RedisError) else None
    return isinstance(wrong, Broken) and _WRONG_TYPE in wrong.message


def candidates(commands: Sequence[Command], raws: Sequence[object]) -> list[str]:
    """The keys of all commands that were refused for a wrong type, each once."""
    refused = [command for command, raw in zip(commands, raws, strict=True) if is_wrong_type(raw)]
    return list(dict.fromkeys(key for command in refused for key in keys_of(command)))


def type_commands(keys: Iterable[str]) -> list[Command]:
    """Ask of which types they are."""
    return [["TYPE", key] for key in keys]


def told(keys: Sequence[str], types: Sequence[object]) -> str:
    """Which of the keys are strangers', what belongs there, and what to do. `types`: their types, if asked."""
    found = {key: text(raw) for key, raw in zip(keys, types, strict=False) if isinstance(raw, bytes | str)}
    wrong = [key for key, kind in found.items() if (own := family_of(key)) and kind not in (own.kind, "none")]
    some = [_one(key, found.get(key, "")) for key in (wrong or keys)[:_NAMED_MAX]]
    more = len(wrong or keys) - len(some)
    said = "; ".join(some) + (f"; and {more} more" if more > 0 else "")
    first = (wrong or keys or [""])[0]
    return (
        f"{said}: something else writes there. Look at it (redis-cli TYPE '{first}'), then rename or delete it,"
        " or use another namespace or another server"
    )


def named_each(
    commands: Sequence[Command], raws: Sequence[object], keys: Sequence[str], types: Sequence[object]
) -> dict[int, Failure]:
    """What went wrong with each command that was refused for a wrong type, by its place, in words that name its keys.
    `keys`: the `candidates`, and their `types`, which are asked for once however many commands have them."""
    found: dict[int, Failure] = {}
    known = dict(zip(keys, types, strict=True))
    for place, (command, raw) in enumerate(zip(commands, raws, strict=True)):
        own = candidates([command], [raw])
        if own and isinstance(raw, RedisError):
            found[place] = _named(failure(raw), own, [known[key] for key in own])
    return found


def _named(wrong: Failure, keys: Sequence[str], types: Sequence[object]) -> Failure:
    said = told(keys, types)
    return Broken(f"{_WRONG_TYPE} {said}" if isinstance(wrong, Broken) and wrong.wrong_type else said)


def _one(key: str, kind: str) -> str:
    own = family_of(key)
    if own is None:
        return f"the key {key!r} in Redis is of another type than expected"
    is_ = f"is a {_KINDS.get(kind, kind)}, not" if kind not in ("", "none", own.kind) else "is not"
    return f"the key {key!r} in Redis {is_} the {_KINDS.get(own.kind, own.kind)} in which Stepwell keeps {own.holds}"


def keys_of(command: Command) -> list[str]:
    """All keys of a command that the store sends."""
    words = [text(each) for each in command]
    name = words[0].upper()
    if name in _SCRIPTS:
        return words[3 : 3 + int(words[2])]
    if "STREAMS" in words:
        after = words[words.index("STREAMS") + 1 :]
        return after[: len(after) // 2]
    first = key_of(command)
    return [] if first is None else [text(first)]
