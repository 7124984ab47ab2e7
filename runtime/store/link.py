"""Sends batches to the server, or to the masters of a Redis Cluster, with every reply accounted for.

There is no repetition of anything that may have been executed below this module. When the connection breaks,
`LinkDown` says that the fate of the whole batch is unknown; the caller sends it again, which is safe because every
script recognises its own work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import redis
from redis.exceptions import AskError, ClusterCrossSlotError, MovedError, NoScriptError, RedisError

from stepwell.core.errors import StoreError
from stepwell.store import strangers
from stepwell.store.cluster import masters_of
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.flight import Flight, LinkDown, NotDurable, Parcel
from stepwell.store.keys import Keys
from stepwell.store.replies import Failure, MasterLost, Refused, Reply, failure
from stepwell.store.requests import Command, Request
from stepwell.store.scripts import Scripts

__all__ = [
    "NOT_DONE",
    "REPEATS_MAX",
    "Link",
    "LinkDown",
    "NotDurable",
    "StoreRefused",
    "block_ms_max",
    "each_answer",
    "require_answers",
]

# How often what a server did not do is sent again. One time is enough, unless it joins a cluster just then.
REPEATS_MAX: Final = 3

# The share of the socket timeout that a command may block.
_BLOCK_SHARE: Final = 0.8

# The server has not executed a command that it answers so: a script is missing, or it is a cluster's and not its own.
NOT_DONE: Final = frozenset({NoScriptError, MovedError, AskError, ClusterCrossSlotError})


class StoreRefused(StoreError):
    """The server answered, but can't do it now (full, read-only, loading, ...): try again later. `kind` is its word."""

    def __init__(self, message: str, kind: str) -> None:
        self.message = message
        self.kind = kind
        super().__init__(f"Redis refuses for now ({kind}): {message}")

    def __reduce__(self) -> tuple[type[StoreRefused], tuple[str, str]]:
        return (type(self), (self.message, self.kind))


class Link:
    """Sends requests through a client's connection pool; threads may share it, as each call takes a connection.

    `durability` says what an acknowledged write is worth; links that write nothing of consequence are relaxed.
    """

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts, durability: Durability = RELAXED) -> None:
        settings = client.get_connection_kwargs()
        retry = settings.get("retry")
        if (retry is not None and retry.get_retries() != 0) or settings.get("retry_on_error"):
            raise ValueError("the Redis client repeats commands by itself; build it with Retry(NoBackoff(), 0)")
        if settings.get("decode_responses"):
            raise ValueError("the Redis client decodes replies; build it with decode_responses=False")
        self.client = client
        self.keys = keys
        self.scripts = scripts
        self.durability = durability
        self._masters = masters_of(client)

    @property
    def clustered(self) -> bool:
        """Whether the server has turned out to be part of a Redis Cluster."""
        return self._masters.clustered

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order. Raises LinkDown when the fate of all of them is unknown, NotDurable when
        they are executed, but not safe.

        Of requests to one master of a cluster that can't be reached, or whose writes are not safe, the replies are
        Refused, of kind `UNREACHABLE`.
        """
        keys, scripts = self.keys, self.scripts
        commands = [request.args(keys, scripts) for request in requests]
        raws = self._exchange(commands)
        replies: list[Reply] = []
        refused = False
        for request, raw in zip(requests, raws, strict=True):
            if isinstance(raw, RedisError):
                refused = True
                replies.append(failure(raw))
            else:
                replies.append(request.parse(raw))
        if refused:
            for place, wrong in self._strange(commands, raws).items():
                replies[place] = wrong
        return replies

    def call(self, commands: Sequence[Command]) -> list[object]:
        """Raw replies of plain commands. Raises LinkDown, StoreRefused (may pass) or StoreError for an error reply."""
        raws = self._exchange(commands)
        strange = strangers.candidates(commands, raws)
        if strange:
            raise StoreError(strangers.told(strange, self._exchange(strangers.type_commands(strange))))
        require_answers(raws)
        return raws

    def attempt(self, commands: Sequence[Command]) -> list[object]:
        """Raw replies of plain commands, with error replies among them, as errors of redis-py. Raises LinkDown."""
        return self._exchange(commands)

    def call_each(self, commands: Sequence[Command]) -> list[object]:
        """As `call`, but where some commands are answered, a Refused stands for the reply of each that was refused for
        now: in a cluster one master may be away, or one slot on the move. A Broken stands for what is no answer: of one
        partition a key may be a stranger's."""
        raws = self._exchange(commands)
        found = each_answer(raws)
        for place, wrong in self._strange(commands, raws).items():
            found[place] = wrong
        return found

    def call_ours(self, commands: Sequence[Command]) -> list[object]:
        """As `call`, but nil where a key is of a foreign type: nothing of ours is there, and it is no other's fault."""
        found = [None if strangers.is_wrong_type(raw) else raw for raw in self._exchange(commands)]
        require_answers(found)
        return found

    def _strange(self, commands: Sequence[Command], raws: Sequence[object]) -> dict[int, Failure]:
        """What went wrong where a key is of a foreign type, by place: which one it is."""
        keys = strangers.candidates(commands, raws)
        return strangers.named_each(commands, raws, keys, self._exchange(strangers.type_commands(keys))) if keys else {}

    def _exchange(self, commands: Sequence[Command]) -> list[object]:
        if self._masters.clustered:
            return self._masters.exchange(commands, self.scripts, self.durability)
        raws = self._round_trip(commands)
        for _ in range(REPEATS_MAX):
            undone = [place for place, raw in enumerate(raws) if type(raw) in NOT_DONE]
            if not undone:
                break
            if all(type(raws[place]) is NoScriptError for place in undone):
                loads = self.scripts.load_commands()
                whole = [self.scripts.with_text(commands[place]) for place in undone]
                again = self._round_trip([*loads, *whole])[len(loads) :]
            else:
                self._masters.learn()
                rest = [commands[place] for place in undone]
                again = self._masters.exchange(rest, self.scripts, self.durability)
            for place, raw in zip(undone, again, strict=True):
                raws[place] = raw
            if self._masters.clustered:
                break
        return raws

    def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        if not commands:
            return []
        return Flight(self.client.connection_pool, Parcel(commands, self.durability)).land()


def each_answer(raws: Sequence[object]) -> list[object]:
    """Replies, with a Refused or a Broken in place of each error. Raises where all commands were refused for now."""
    found = [failure(raw) if isinstance(raw, RedisError) else raw for raw in raws]
    if all(type(raw) is Refused for raw in found):
        require_answers(raws)
    return found


def block_ms_max(client: redis.Redis) -> int:
    """How long a command may block (ms), so that waiting for it does not look like a dead connection."""
    timeout = client.get_connection_kwargs().get("socket_timeout")
    return int(timeout * 1000 * _BLOCK_SHARE) if timeout else 60_000


def require_answers(raws: Sequence[object]) -> None:
    """Raises for the first error among replies: LinkDown, StoreRefused or StoreError; its cause is redis-py's error."""
    for raw in raws:
        if isinstance(raw, MasterLost):
            raise LinkDown(str(raw))
        if isinstance(raw, RedisError):
            wrong = failure(raw)
            if isinstance(wrong, Refused):
                raise StoreRefused(wrong.reason, wrong.kind) from raw
            raise StoreError(f"Redis answered with an error: {wrong.message}") from raw
