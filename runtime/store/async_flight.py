"""The asyncio twin of `flight`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import redis.asyncio
from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from stepwell.store.durability import RELAXED, Durability
from stepwell.store.flight import LinkDown, Parcel, moves_away, require_safe
from stepwell.store.requests import Command

__all__ = ["carry", "fly"]


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    async def send_packed_command(self, command: list[bytes]) -> None: ...

    async def read_response(self, *, disconnect_on_error: bool) -> object: ...

    async def disconnect(self, nowait: bool) -> None: ...


class _Pool(Protocol):
    async def get_connection(self) -> _Connection: ...

    async def release(self, connection: _Connection) -> None: ...


async def fly(
    pool: redis.asyncio.ConnectionPool, commands: Sequence[Command], durability: Durability = RELAXED
) -> list[object]:
    """Send commands on one connection; their replies in order, error replies among them. Raises as `Flight` does."""
    return await carry(pool, Parcel(commands, durability))


async def carry(pool: redis.asyncio.ConnectionPool, parcel: Parcel) -> list[object]:
    """The same for commands that are packed already."""
    connections = cast(_Pool, pool)
    try:
        connection = await connections.get_connection()
    except (RedisError, OSError) as error:
        raise LinkDown(f"no connection to Redis: {error}", sent=False) from error
    raws: list[object] = []
    reusable = False
    try:
        await connection.send_packed_command([parcel.packed])
        for _ in range(parcel.answers):
            try:
                raws.append(await connection.read_response(disconnect_on_error=False))
            except (ResponseError, BusyLoadingError) as error:
                raws.append(error)
        reusable = not any(isinstance(raw, RedisError) and moves_away(raw) for raw in raws)
    except (RedisError, OSError) as error:
        raise LinkDown(
            f"the connection to Redis broke after {len(raws)} of {parcel.answers - parcel.waits} replies: {error}"
        ) from error
    finally:
        # A connection with unread replies (a cancelled task leaves some) must never serve another batch.
        if not reusable:
            await connection.disconnect(nowait=True)
        await connections.release(connection)
    if parcel.waits:
        require_safe(raws, parcel.durability)
    return raws
