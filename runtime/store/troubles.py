"""In what way Redis could not be used, in a few words that stay the same."""

from __future__ import annotations

from typing import Final

from redis.exceptions import TimeoutError as RedisTimeoutError

from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.replies import UNREACHABLE

__all__ = ["KINDS", "kind_of", "kind_of_refusal"]

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
    if not error.sent:
        return "unreachable"
    return "timeout" if isinstance(error.__cause__, RedisTimeoutError | TimeoutError) else "broken"


def kind_of_refusal(word: str) -> str:
    """The word for a server's own (`Refused.kind`)."""
    return _REFUSALS.get(word, "refused")
