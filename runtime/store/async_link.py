"""The asyncio twin of `Link`, for callers that ask without owning anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import redis.asyncio
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError

from stepwell.store.durability import RELAXED, Durability
from stepwell.store.link import LOADS_MAX, LinkDown, NotDurable, moves_away, pack, require_answers
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["AsyncLink"]


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    async def send_packed_command(self, command: list[bytes]) -> None: ...

    async def read_response(self, *, disconnect_on_error: bool) -> object: ...

    async def disconnect(self, nowait: bool) -> None: ...


class _Pool(Protocol):
    async def get_connection(self) -> _Connection: ...

    async def release(self, connection: _Connection) -> None: ...


class AsyncLink:
    """Sends commands through a client's connection pool; tasks of one event loop may share it."""

    def __init__(self, client: redis.asyncio.Redis, scripts: Scripts, durability: Durability = RELAXED) -> None:
        self.client = client
        self.durability = durability
        self._scripts = scripts

    async def call(self, commands: Sequence[Command]) -> list[object]:
        """Raw replies of commands. Raises as `Link.call` does."""
        raws = await self._round_trip(commands)
        for _ in range(LOADS_MAX):
            forgotten = [place for place, raw in enumerate(raws) if type(raw) is NoScriptError]
            if not forgotten:
                break
            await self._round_trip(self._scripts.load_commands())
            again = await self._round_trip([commands[place] for place in forgotten])
            for place, raw in zip(forgotten, again, strict=True):
                raws[place] = raw
        require_answers(raws)
        return raws

    async def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        if not commands:
            return []
        wait = self.durability.wait_for(commands)
        packed = pack(commands if wait is None else [*commands, wait])
        pool = cast(_Pool, self.client.connection_pool)
        try:
            connection = await pool.get_connection()
        except (RedisError, OSError) as error:
            raise LinkDown(f"no connection to Redis: {error}") from error
        raws: list[object] = []
        reusable = False
        try:
            await connection.send_packed_command([packed])
            for _ in range(len(commands) + (wait is not None)):
                try:
                    raws.append(await connection.read_response(disconnect_on_error=False))
                except (ResponseError, BusyLoadingError) as error:
                    raws.append(error)
            reusable = not any(isinstance(raw, RedisError) and moves_away(raw) for raw in raws)
        except (RedisError, OSError) as error:
            raise LinkDown(
                f"the connection to Redis broke after {len(raws)} of {len(commands)} replies: {error}"
            ) from error
        finally:
            # A connection with unread replies (a cancelled task leaves some) must never serve another batch.
            if not reusable:
                await connection.disconnect(nowait=True)
            await pool.release(connection)
        if wait is not None:
            why = self.durability.shortfall(raws.pop())
            if why and not all(isinstance(raw, RedisError) for raw in raws):
                raise NotDurable(why)
        return raws
