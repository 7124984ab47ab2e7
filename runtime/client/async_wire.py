"""Carries out a conversation's moves on asyncio connections: the twin of `wire`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

import redis.asyncio
from redis.exceptions import RedisError

from stepwell.client.address import Address, Place
from stepwell.client.async_ears import Ear, Ears
from stepwell.client.facts import NamespaceView
from stepwell.client.following import Away
from stepwell.client.moves import Ask, Conversation, Hear, Listen, Move, Peek
from stepwell.client.wire import Trouble, explained
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError, UsageError
from stepwell.store.async_link import AsyncLink
from stepwell.store.connect import explain

__all__ = ["AsyncWire"]

T = TypeVar("T")
ASKS_AT_ONCE: Final = 90
"""So many requests are under way at a time, of the 100 connections that there may be; others wait for their turn."""
CLOSED: Final = "this client is closed: make a new one"


class AsyncWire:
    """One client's connections, for the tasks of one event loop. The address is taken into use at the first request."""

    def __init__(
        self,
        address: Address,
        connect: Callable[[str], redis.asyncio.Redis],
        view: NamespaceView,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_join: Callable[[Place], None] = lambda place: None,
    ) -> None:
        self._address = address
        self._connect = connect
        self._view = view
        self._clock = clock
        self._sleep = sleep
        self._on_join = on_join
        self._ears = Ears()
        self._turns = asyncio.Semaphore(ASKS_AT_ONCE)
        self._joining = asyncio.Lock()
        self._place: Place | None = None
        self._closed = False

    async def run(self, conversation: Conversation[T]) -> T:
        """The conversation's result. Errors of Redis are raised as StoreErrors that say what to do."""
        place = await self.join()
        ear = Ear(self._ears)
        cancelled = _cancellations()
        trouble = Trouble(self._clock)
        try:
            move = next(conversation)
            while True:
                trouble.sends(move)
                try:
                    answer = await self._carry_out(move, ear, place)
                except StoreError as error:
                    trouble.failed()
                    move = conversation.throw(error)
                else:
                    trouble.answered(move)
                    if cancelled() > 0:
                        # redis-py waits with asyncio.wait_for, which may lose a cancellation before Python 3.12.
                        raise asyncio.CancelledError
                    move = conversation.send(answer)
        except StopIteration as end:
            return cast("T", end.value)
        except StoreError as error:
            raise explained(error, place.url, trouble.seconds) from error
        finally:
            conversation.close()
            ear.leave()

    async def join(self) -> Place:
        """Take the address into use, which starts an embedded server if need be."""
        async with self._joining:
            if self._closed:
                raise UsageError(CLOSED)
            if self._place is None:
                self._place = await asyncio.to_thread(Place, self._address)
                self._on_join(self._place)
                self._open(self._place)
            return self._place

    def in_words(self, away: Away | None) -> Away | None:
        """The same, for a person: errors say what is wrong with which server."""
        if away is None:
            return None

        def tell(error: StoreError | None) -> None:
            url = "" if self._place is None else self._place.url
            away(None if error is None else explained(error, url))

        return tell

    async def close(self) -> None:
        """Close all connections and leave the embedded server. Closing twice is harmless."""
        async with self._joining:
            self._closed = True
            await self._ears.close()
            if self._place is not None:
                await self._client.aclose()
                await asyncio.to_thread(self._place.leave)

    def _open(self, place: Place) -> None:
        self._client = self._connect(place.url)
        self._link = AsyncLink(self._client, self._view.scripts)

    async def _carry_out(self, move: Move, ear: Ear, place: Place) -> object:
        if self._closed:
            raise UsageError(CLOSED)
        try:
            if isinstance(move, Ask | Peek):
                async with self._turns:
                    return await self._ask(move)
            if isinstance(move, Listen):
                await ear.listen(self._client, move.channel)
                return None
            if isinstance(move, Hear):
                return await ear.hear(move.seconds)
        except RedisError as error:
            raise explain(error, place.url) from error
        await self._sleep(move.seconds)
        if await asyncio.to_thread(place.revive):
            self._open(place)
        return None

    async def _ask(self, move: Ask | Peek) -> object:
        if isinstance(move, Peek):
            return await self._link.call_each(move.commands)
        self._link.durability = self._view.durability()
        return await self._link.call(move.commands)


def _cancellations() -> Callable[[], int]:
    """Counts how often the current task has been cancelled since now."""
    task = asyncio.current_task()
    if task is None:
        return lambda: 0
    before = task.cancelling()
    return lambda: task.cancelling() - before
