"""What an acknowledgement of Redis is worth: executed, on its disk, or on its replicas.

A writing link ends each batch with WAITAOF or WAIT on the same connection and compares the answer: both answer with
numbers when their time is over, not with errors. A batch that falls short is sent again; every script that recognises
its own work writes a little then, so that the next wait covers it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec
from redis.exceptions import RedisError

from stepwell.core.errors import StoreUnfit, UsageError

if TYPE_CHECKING:
    from stepwell.store.check import ServerFacts

__all__ = ["MODES", "RELAXED", "Durability", "Mode", "parse_durability", "require_durable", "slow_mode"]

Mode: TypeAlias = Literal["relaxed", "aof", "replicated"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

# Under the socket timeout (3 s in a worker): a wait that takes longer would look like a dead connection.
WAIT_MS: Final = 2000

# The first version of each server that has WAITAOF.
_WAITAOF_REDIS: Final = (7, 2)

# What writes, of all that is sent through a link that may wait.
_WRITING: Final = frozenset({"EVALSHA", "EVAL", "XADD"})

REPLICAS_MAX: Final = 999  # its text must be one that can be read again
_NAMED = re.compile(r"(relaxed|aof|replicated)(?::([1-9][0-9]{0,2}))?")


class Durability(msgspec.Struct, frozen=True):
    """When a write counts as acknowledged: `relaxed` when the server executed it, `aof` when its append-only file is
    on the disk, `replicated` when `replicas` replicas have it.

    As text: `relaxed`, `aof`, `replicated:2`.
    """

    mode: Mode = "relaxed"
    replicas: int = 0

    def __str__(self) -> str:
        return f"replicated:{self.replicas}" if self.mode == "replicated" else self.mode

    def wait_for(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[str | bytes | int] | None:
        """What to send after these commands on the same connection; None where nothing is to be waited for."""
        if self.mode == "relaxed" or not any(command[0] in _WRITING for command in commands):
            return None
        if self.mode == "aof":
            return ["WAITAOF", 1, 0, WAIT_MS]
        return ["WAIT", self.replicas, WAIT_MS]

    def shortfall(self, answer: object) -> str:
        """Why the answer to that is not enough; '' where it is."""
        if isinstance(answer, RedisError):
            return f"the server can't tell whether it is safe: {answer}"
        if self.mode == "aof":
            local = answer[0] if isinstance(answer, list) and answer else answer
            return "" if isinstance(local, int) and local >= 1 else f"it is not on the disk after {WAIT_MS} ms"
        if isinstance(answer, int) and answer >= self.replicas:
            return ""
        return f"{answer} of {self.replicas} replicas have it after {WAIT_MS} ms"


RELAXED: Final = Durability()


def parse_durability(text: str, replicas: int | None = None) -> Durability:
    """`relaxed`, `aof`, `replicated` (one replica, or `replicas`) or `replicated:2`. Raises UsageError."""
    match = _NAMED.fullmatch(text)
    if match is None or (match[2] and match[1] != "replicated"):
        raise UsageError(f"expected durability to be relaxed, aof, replicated or replicated:N, got {text!r:.80}")
    if match[1] != "replicated":
        if replicas is not None:
            raise UsageError(f"a number of replicas goes with durability replicated, not with {text}")
        return Durability("aof" if match[1] == "aof" else "relaxed")
    named = int(match[2]) if match[2] else None
    if None not in (named, replicas) and named != replicas:
        raise UsageError(f"durability {text} says another number of replicas than {replicas}")
    count = named or replicas or (1 if replicas is None else 0)
    if not 1 <= count <= REPLICAS_MAX:
        raise UsageError(f"expected 1 to {REPLICAS_MAX} replicas for durability replicated, got {count}")
    return Durability("replicated", count)


def require_durable(durability: Durability, facts: ServerFacts) -> None:
    """Raise StoreUnfit, with what to change, where the server can't keep that now."""
    where = f"durability {durability} is asked for, but the server at {facts.address}"
    if durability.mode == "aof":
        if facts.name != "valkey" and facts.version and facts.version < _WAITAOF_REDIS:
            raise StoreUnfit(
                f"{where} ({facts.title}) has no WAITAOF: use Redis 7.2 or newer or Valkey; with"
                " `appendfsync always`, durability relaxed waits for the disk on any version"
            )
        if facts.aof_enabled is False:
            raise StoreUnfit(
                f"{where} keeps no append-only file: run CONFIG SET appendonly yes there, and put it into its"
                " configuration"
            )
        if facts.appendfsync == "no":
            raise StoreUnfit(f"{where} leaves it to the system when to write to the disk: set appendfsync always there")
    elif durability.mode == "replicated" and facts.replicas is not None and facts.replicas < durability.replicas:
        raise StoreUnfit(f"{where} has {facts.replicas} replicas connected, not {durability.replicas}: connect more")


def slow_mode(durability: Durability, facts: ServerFacts) -> str:
    """A sentence where a mode is in force that can be had much faster; '' otherwise."""
    if durability.mode == "aof" and facts.appendfsync == "everysec":
        return (
            "durability aof with appendfsync everysec: each batch waits 100 ms and more for the disk; with"
            " appendfsync always it is 1 to 3 ms"
        )
    return ""
