"""One pipeline at a time to the server, with every reply accounted for.

A batch is packed by hiredis, goes out in one write, and its replies are read in order, straight on the connection:
less than half of what redis-py's pipeline object costs in CPU. There is no repetition below this module. When the
connection breaks, `LinkDown` says that the fate of the whole batch is unknown; the caller sends it again, which is
safe because every script recognises its own work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import hiredis
import redis
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError

from stepwell.core.errors import StoreError, StoreUnreachable
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.keys import Keys
from stepwell.store.replies import Refused, Reply, failure
from stepwell.store.requests import Command, Request
from stepwell.store.scripts import Scripts

__all__ = ["LOADS_MAX", "Link", "LinkDown", "NotDurable", "StoreRefused", "moves_away", "pack", "require_answers"]

# A server that forgets its scripts between a load and the resend more often than this is broken.
LOADS_MAX: Final = 3

# After these the address may lead to another server (a failover): connect anew.
_RECONNECT_ON: Final = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN"})


# Typed by hiredis as a tuple of exactly one argument.
_pack = cast(Callable[[tuple[str | bytes | int, ...]], bytes], hiredis.pack_command)


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def send_packed_command(self, command: list[bytes]) -> None: ...

    def read_response(self, *, disconnect_on_error: bool) -> object: ...

    def disconnect(self) -> None: ...


class LinkDown(StoreUnreachable):
    """There was no connection, or it broke; whether the batch was executed is unknown. Send it again."""


class NotDurable(LinkDown):
    """The server has executed the batch, but it is not as safe as was asked for. Send it again."""

    def __init__(self, why: str) -> None:
        super().__init__(f"what was written is not safe yet: {why}")


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

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order. Raises LinkDown when the fate of all of them is unknown, NotDurable when
        they are executed, but not safe."""
        keys, scripts = self.keys, self.scripts
        raws = self._exchange([request.args(keys, scripts) for request in requests])
        return [
            failure(raw) if isinstance(raw, RedisError) else request.parse(raw)
            for request, raw in zip(requests, raws, strict=True)
        ]

    def call(self, commands: Sequence[Command]) -> list[object]:
        """Raw replies of plain commands. Raises LinkDown, StoreRefused (may pass) or StoreError for an error reply."""
        raws = self._exchange(commands)
        require_answers(raws)
        return raws

    def _exchange(self, commands: Sequence[Command]) -> list[object]:
        raws = self._round_trip(commands)
        for _ in range(LOADS_MAX):
            forgotten = [place for place, raw in enumerate(raws) if type(raw) is NoScriptError]
            if not forgotten:
                break
            self._round_trip(self.scripts.load_commands())
            again = self._round_trip([commands[place] for place in forgotten])
            for place, raw in zip(forgotten, again, strict=True):
                raws[place] = raw
        return raws

    def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        if not commands:
            return []
        wait = self.durability.wait_for(commands)
        packed = pack(commands if wait is None else [*commands, wait])
        pool = self.client.connection_pool
        try:
            taken = pool.get_connection()
        except (RedisError, OSError) as error:
            # Also a server that answers, but refuses the handshake for now (busy, another password, no rights).
            raise LinkDown(f"no connection to Redis: {error}") from error
        connection = cast(_Connection, taken)
        raws: list[object] = []
        reusable = False
        try:
            connection.send_packed_command([packed])
            read = connection.read_response
            for _ in range(len(commands) + (wait is not None)):
                try:
                    raws.append(read(disconnect_on_error=False))
                except (ResponseError, BusyLoadingError) as error:
                    raws.append(error)
            reusable = not any(isinstance(raw, RedisError) and moves_away(raw) for raw in raws)
        except (RedisError, OSError) as error:
            raise LinkDown(
                f"the connection to Redis broke after {len(raws)} of {len(commands)} replies: {error}"
            ) from error
        finally:
            # A connection with unread replies must never serve another batch.
            if not reusable:
                connection.disconnect()
            pool.release(taken)
        if wait is not None:
            why = self.durability.shortfall(raws.pop())
            if why and not all(isinstance(raw, RedisError) for raw in raws):
                raise NotDurable(why)
        return raws


def pack(commands: Sequence[Command]) -> bytes:
    """Commands as they go over the wire. A value of a wrong type is refused here, before half a batch is sent."""
    return b"".join([_pack(tuple(command)) for command in commands])


def require_answers(raws: Sequence[object]) -> None:
    """Raises StoreRefused or StoreError for the first error among replies; its cause is redis-py's error."""
    for raw in raws:
        if isinstance(raw, RedisError):
            wrong = failure(raw)
            if isinstance(wrong, Refused):
                raise StoreRefused(wrong.reason, wrong.kind) from raw
            raise StoreError(f"Redis answered with an error: {wrong.message}") from raw


def moves_away(error: RedisError) -> bool:
    """Whether the address may lead to another server by now, so that its connections must be made anew."""
    wrong = failure(error)
    return isinstance(wrong, Refused) and wrong.kind in _RECONNECT_ON
