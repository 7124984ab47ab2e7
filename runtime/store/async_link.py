"""The asyncio twin of `Link`, for callers that ask without owning anything."""

from __future__ import annotations

from collections.abc import Sequence

import redis.asyncio
from redis.exceptions import NoScriptError

from stepwell.core.errors import StoreError
from stepwell.store import strangers
from stepwell.store.async_cluster import async_masters_of
from stepwell.store.async_flight import fly
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.link import NOT_DONE, REPEATS_MAX, each_answer, require_answers
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["AsyncLink"]


class AsyncLink:
    """Sends commands through a client's connection pool; tasks of one event loop may share it."""

    def __init__(self, client: redis.asyncio.Redis, scripts: Scripts, durability: Durability = RELAXED) -> None:
        self.client = client
        self.durability = durability
        self._scripts = scripts
        self._masters = async_masters_of(client)

    async def call(self, commands: Sequence[Command]) -> list[object]:
        """Raw replies of commands. Raises as `Link.call` does."""
        raws = await self._exchange(commands)
        strange = strangers.candidates(commands, raws)
        if strange:
            raise StoreError(strangers.told(strange, await self._exchange(strangers.type_commands(strange))))
        require_answers(raws)
        return raws

    async def call_each(self, commands: Sequence[Command]) -> list[object]:
        """As `Link.call_each`."""
        raws = await self._exchange(commands)
        found = each_answer(raws)
        keys = strangers.candidates(commands, raws)
        if keys:
            types = await self._exchange(strangers.type_commands(keys))
            for place, wrong in strangers.named_each(commands, raws, keys, types).items():
                found[place] = wrong
        return found

    async def _exchange(self, commands: Sequence[Command]) -> list[object]:
        if self._masters.clustered:
            return await self._masters.exchange(commands, self._scripts, self.durability)
        raws = await self._round_trip(commands)
        for _ in range(REPEATS_MAX):
            undone = [place for place, raw in enumerate(raws) if type(raw) in NOT_DONE]
            if not undone:
                break
            if all(type(raws[place]) is NoScriptError for place in undone):
                loads = self._scripts.load_commands()
                whole = [self._scripts.with_text(commands[place]) for place in undone]
                again = (await self._round_trip([*loads, *whole]))[len(loads) :]
            else:
                await self._masters.learn()
                rest = [commands[place] for place in undone]
                again = await self._masters.exchange(rest, self._scripts, self.durability)
            for place, raw in zip(undone, again, strict=True):
                raws[place] = raw
            if self._masters.clustered:
                break
        return raws

    async def _round_trip(self, commands: Sequence[Command]) -> list[object]:
        return await fly(self.client.connection_pool, commands, self.durability) if commands else []
