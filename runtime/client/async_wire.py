"""Carries out a conversation's moves on asyncio connections: the twin of `wire`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import RedisError

from stepwell.client.address import Address, Place
from stepwell.client.facts import NamespaceView
from stepwell.client.following import Away
from stepwell.client.moves import Ask, Conversation, Hear, Listen, Move, Peek
from stepwell.client.wire import CONFIRM_SECONDS, IDLE_MAX, explained, is_message
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError, UsageError
from stepwell.store.async_link import AsyncLink
from stepwell.store.connect import explain
from stepwell.store.link import LinkDown

__all__ = ["AsyncWire"]

T = TypeVar("T")


class _PubSub(Protocol):
    """What is used of redis-py's."""

    async def subscribe(self, channel: str) -> None: ...

    async def unsubscribe(self, channel: str) -> None: ...

    async def get_message(self, *, timeout: float) -> object: ...

    async def aclose(self) -> None: ...


class _Client(Protocol):
    def pubsub(self) -> _PubSub: ...


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
        self._idle: list[_PubSub] = []
        self._joining = asyncio.Lock()
        self._place: Place | None = None
        self._closed = False

    async def run(self, conversation: Conversation[T]) -> T:
        """The conversation's result. Errors of Redis are raised as StoreErrors that say what to do."""
        place = await self.join()
        ear = _Ear(self._idle, self._clock)
        cancelled = _cancellations()
        try:
            move = next(conversation)
            while True:
                try:
                    answer = await self._carry_out(move, ear, place)
                except StoreError as error:
                    move = conversation.throw(error)
                else:
                    if cancelled() > 0:
                        # redis-py waits with asyncio.wait_for, which may lose a cancellation before Python 3.12.
                        raise asyncio.CancelledError
                    move = conversation.send(answer)
        except StopIteration as end:
            await ear.keep()
            return cast("T", end.value)
        except StoreError as error:
            raise explained(error, place.url) from error
        finally:
            conversation.close()
            await ear.drop()

    async def join(self) -> Place:
        """Take the address into use, which starts an embedded server if need be."""
        async with self._joining:
            if self._closed:
                raise UsageError("this client is closed: make a new one")
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
            while self._idle:
                await self._idle.pop().aclose()
            if self._place is not None:
                await self._client.aclose()
                await asyncio.to_thread(self._place.leave)

    def _open(self, place: Place) -> None:
        self._client = self._connect(place.url)
        self._link = AsyncLink(self._client, self._view.scripts)

    async def _carry_out(self, move: Move, ear: _Ear, place: Place) -> object:
        try:
            if isinstance(move, Ask):
                self._link.durability = self._view.durability()
                return await self._link.call(move.commands)
            if isinstance(move, Peek):
                return await self._link.call_each(move.commands)
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


def _cancellations() -> Callable[[], int]:
    """Counts how often the current task has been cancelled since now."""
    task = asyncio.current_task()
    if task is None:
        return lambda: 0
    before = task.cancelling()
    return lambda: task.cancelling() - before


class _Ear:
    """One conversation's subscription."""

    def __init__(self, idle: list[_PubSub], clock: Clock) -> None:
        self._idle = idle
        self._clock = clock
        self._pubsub: _PubSub | None = None
        self._channel = ""

    async def listen(self, client: redis.asyncio.Redis, channel: str) -> None:
        """Subscribe, and wait for the confirmation. Raises LinkDown."""
        await self.drop()
        self._channel = channel
        try:
            self._pubsub = self._idle.pop() if self._idle else cast(_Client, client).pubsub()
            await self._pubsub.subscribe(channel)
            if not await self._heard("subscribe", CONFIRM_SECONDS):
                raise LinkDown(f"Redis has not confirmed a subscription within {CONFIRM_SECONDS:g} s")
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise LinkDown(f"the subscription to Redis broke: {error}") from error

    async def hear(self, seconds: float) -> bool:
        """Whether a message came within so many seconds. Raises LinkDown."""
        try:
            return await self._heard("message", seconds)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise LinkDown(f"the subscription to Redis broke: {error}") from error

    async def _heard(self, kind: str, seconds: float) -> bool:
        if self._pubsub is None:
            raise LinkDown("there is no subscription")
        until = self._clock.monotonic() + seconds
        while True:
            message = await self._pubsub.get_message(timeout=max(0.0, until - self._clock.monotonic()))
            if message is None or is_message(message, kind, self._channel):
                return message is not None

    async def keep(self) -> None:
        """Unsubscribe and leave the connection to the next one who waits."""
        pubsub = self._pubsub
        if pubsub is None or len(self._idle) >= IDLE_MAX:
            return
        try:
            await pubsub.unsubscribe(self._channel)
        except (RedisError, OSError):
            return
        self._pubsub = None
        self._idle.append(pubsub)

    async def drop(self) -> None:
        """Close a connection of which nobody knows what is still to come."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.aclose()
