"""Subscriptions of one client's tasks, all on one connection: a thousand who wait need no thousand connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, Protocol, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from stepwell.client.wire import CONFIRM_SECONDS
from stepwell.store.link import LinkDown

__all__ = ["Ear", "Ears"]

# So long without a message and without a listener, and the connection is closed.
READ_SECONDS: Final = 5.0


class _Connection(Protocol):
    retry: Retry


class _PubSub(Protocol):
    """What is used of redis-py's."""

    connection: _Connection

    async def connect(self) -> None: ...

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, *channels: str) -> None: ...

    async def get_message(self, *, timeout: float) -> object: ...

    async def aclose(self) -> None: ...


class _Client(Protocol):
    def pubsub(self) -> _PubSub: ...


class Ear:
    """One conversation's subscription. Where the connection broke, it has to listen anew."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._woken = asyncio.Event()
        self._line: _Line | None = None
        self._channel = ""
        self._broken: BaseException | None = None

    async def listen(self, client: redis.asyncio.Redis, channel: str) -> None:
        """Subscribe (instead of before), and wait for the confirmation. Raises LinkDown."""
        self.leave()
        line = self._ears.line(client)
        self._woken.clear()
        self._broken, self._line, self._channel = None, line, channel
        confirmed = line.join(self, channel)
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await confirmed.wait()
        except TimeoutError:
            line.end(ConnectionError(f"Redis has not confirmed a subscription within {CONFIRM_SECONDS:g} s"))
        self._check()

    async def hear(self, seconds: float) -> bool:
        """Whether a message came within so many seconds. Raises LinkDown."""
        if self._line is None:
            raise LinkDown("there is no subscription")
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._check()
        heard = self._woken.is_set()
        self._woken.clear()
        return heard

    def leave(self) -> None:
        """Listen no more."""
        line, self._line = self._line, None
        if line is not None:
            line.part(self, self._channel)

    def wake(self, broken: BaseException | None = None) -> None:
        """A message has come, or the connection is gone."""
        self._broken = self._broken or broken
        self._woken.set()

    def _check(self) -> None:
        if self._broken is not None:
            self._line = None
            raise LinkDown(f"the subscription to Redis broke: {self._broken}") from self._broken


class Ears:
    """All of a client's. They share a line, for as long as it holds."""

    def __init__(self) -> None:
        self._line: _Line | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def line(self, client: redis.asyncio.Redis) -> _Line:
        """The line to the client's server. Raises LinkDown when all is closed."""
        if self._closed:
            raise LinkDown("the client is closed")
        line = self._line
        if line is None or line.over or line.client is not client:
            if line is not None:
                line.end(ConnectionError("the server has moved"))
            line = self._line = _Line(client)
            task = asyncio.create_task(line.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return line

    async def close(self) -> None:
        """End the connection. Whoever listens still hears that it broke."""
        self._closed = True
        if self._line is not None:
            self._line.end(ConnectionError("the client was closed"))
        while self._tasks:
            await asyncio.wait(self._tasks)


class _Line:
    """One connection. A single task connects, sends, reads and closes; all others note what they want and wait for it.

    Nobody who is cancelled can thereby cut a command in half, and no two connect at once.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client = client
        self.over = False
        self._ears: dict[str, set[Ear]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._changed: set[str] = set()
        self._subscribed: set[str] = set()
        self._unanswered: Counter[str] = Counter()
        self._reading: asyncio.Timeout | None = None
        self._connecting: asyncio.Timeout | None = None

    def join(self, ear: Ear, channel: str) -> asyncio.Event:
        """Add a listener; the event is set when the server has confirmed the channel, or at the line's end."""
        self._ears.setdefault(channel, set()).add(ear)
        confirmed = self._confirmed.setdefault(channel, asyncio.Event())
        if not confirmed.is_set():
            self._wish(channel)
        return confirmed

    def part(self, ear: Ear, channel: str) -> None:
        """Take a listener off."""
        ears = self._ears.get(channel)
        if ears is None:
            return
        ears.discard(ear)
        if not ears:
            del self._ears[channel], self._confirmed[channel]
            self._wish(channel)

    def end(self, error: BaseException) -> None:
        """Tell all who listen that it broke. The task closes the connection as soon as it comes to it."""
        if self.over:
            return
        self.over = True
        for confirmed in self._confirmed.values():
            confirmed.set()
        for ears in self._ears.values():
            for ear in ears:
                ear.wake(error)
        self._ears.clear()
        self._confirmed.clear()
        self._stop_reading()
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(0.0)

    async def run(self) -> None:
        """The connection's whole life, as its only task."""
        pubsub = cast(_Client, self.client).pubsub()
        try:
            await self._serve(pubsub)
        except (RedisError, OSError) as error:
            self.end(error)
        finally:
            self.end(ConnectionError("the task that listens has ended"))
            await _close(pubsub)

    async def _serve(self, pubsub: _PubSub) -> None:
        if not await self._connect(pubsub):
            return
        connection = pubsub.connection
        usual = connection.retry
        # By itself redis-py connects anew after an error, and hides that messages may have been missed.
        connection.retry = Retry(NoBackoff(), 0, supported_errors=())
        try:
            while not self.over:
                if self._changed:
                    await self._settle(pubsub)
                elif isinstance(message := await self._read(pubsub), dict):
                    self._take(str(message.get("type")), message.get("channel"))
                elif not self._ears and not self._changed:
                    return
        finally:
            connection.retry = usual

    async def _connect(self, pubsub: _PubSub) -> bool:
        """Whether it is connected before the line is over: who closes the client waits for no server that hangs."""
        if self.over:
            return False
        try:
            async with asyncio.timeout(None) as self._connecting:
                await pubsub.connect()
        finally:
            self._connecting = None
        return True

    async def _settle(self, pubsub: _PubSub) -> None:
        """Bring the subscriptions in line with what is wanted."""
        changed, self._changed = self._changed, set()
        new = [each for each in changed if each in self._ears and each not in self._subscribed]
        old = [each for each in changed if each not in self._ears and each in self._subscribed]
        for channel in changed.difference(new, old):
            self._confirm(channel)
        self._subscribed.update(new)
        self._subscribed.difference_update(old)
        self._unanswered.update([*new, *old])
        if new:
            await pubsub.subscribe(*new)
        if old:
            await pubsub.unsubscribe(*old)

    async def _read(self, pubsub: _PubSub) -> object:
        """The next message; None where there is none for long, or something else to do."""
        try:
            async with asyncio.timeout(READ_SECONDS) as reading:
                self._reading = reading
                message = await pubsub.get_message(timeout=2 * READ_SECONDS)
        except TimeoutError:
            if reading.expired():
                return None
            raise
        finally:
            self._reading = None
        if message is None:  # redis-py takes a socket that has timed out for one where nothing came
            raise ConnectionError("the connection has timed out")
        return message

    def _take(self, kind: str, raw: object) -> None:
        channel = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
        if kind == "message":
            for ear in self._ears.get(channel, ()):
                ear.wake()
        elif kind in ("subscribe", "unsubscribe"):
            self._unanswered[channel] -= 1
            self._confirm(channel)

    def _confirm(self, channel: str) -> None:
        if self._unanswered[channel] > 0:
            return
        del self._unanswered[channel]
        if channel in self._subscribed and channel in self._confirmed:
            self._confirmed[channel].set()

    def _wish(self, channel: str) -> None:
        self._changed.add(channel)
        self._stop_reading()

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and not reading.expired():
            reading.reschedule(0.0)


async def _close(pubsub: _PubSub) -> None:
    try:
        await pubsub.aclose()
    except (RedisError, OSError):
        return  # it was broken
