"""In what way Redis could not be used, in a few words that stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.replies import UNREACHABLE

__all__ = ["KINDS", "causes", "is_silence", "kind_of", "kind_of_refusal"]

_REFUSALS: Final = {
    "READONLY": "readonly",
    "OOM": "full",
    "MISCONF": "full",
    "LOADING": "loading",
    "BUSY": "busy",
    "NOREPLICAS": "replicas",
    "CLUSTERDOWN": "cluster",
    "MASTERDOWN": "cluster",
    "TRYAGAIN": "cluster",
    UNREACHABLE: "unreachable",
}
KINDS: Final = frozenset({*_REFUSALS.values(), "broken", "timeout", "refused"})
"""It could not be reached; the connection broke; no answer came in time; it is read-only, full (or can't save),
loading, busy with a script, short of replicas; a master of the cluster is away or on the move; it refused a command."""


def kind_of(error: Exception) -> str:
    """The word for what the store's readers and writers raise."""
    if isinstance(error, StoreRefused):
        return kind_of_refusal(error.kind)
    if not isinstance(error, LinkDown):
        return "refused"
    # Of a primary that Sentinels watch, redis-py takes a read-only answer for a connection that broke.
    if any(isinstance(cause, ReadOnlyError) for cause in causes(error)):
        return "readonly"
    if not error.sent:
        return "unreachable"
    return "timeout" if isinstance(error.__cause__, RedisTimeoutError | TimeoutError) else "broken"


def kind_of_refusal(word: str) -> str:
    """The word for a server's own (`Refused.kind`)."""
    return _REFUSALS.get(word, "refused")


def is_silence(error: BaseException) -> bool:
    """Whether nothing was heard of the server in time: neither an answer, nor that it takes connections."""
    return any(isinstance(cause, RedisTimeoutError | TimeoutError) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, one behind the other."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
