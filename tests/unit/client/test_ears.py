"""The line that the tasks of one async client share: what they wish for as its reader has waited long enough."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from stepwell.client import async_ears
from stepwell.client.async_ears import Ear, Ears
from stepwell.store.link import LinkDown


class PubSub:
    """Confirms each subscription. `when_read` is called once, when somebody begins to wait for a message."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(retry=None)
        self.when_read: Any = None
        self._messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    async def connect(self) -> None: ...

    async def aclose(self) -> None: ...

    async def subscribe(self, *channels: str) -> None:
        for channel in channels:
            self._messages.put_nowait({"type": "subscribe", "channel": channel.encode()})

    async def unsubscribe(self, *channels: str) -> None:
        for channel in channels:
            self._messages.put_nowait({"type": "unsubscribe", "channel": channel.encode()})

    async def get_message(self, *, timeout: float) -> object:
        if self.when_read is not None and self._messages.empty():
            call, self.when_read = self.when_read, None
            call()
        return await self._messages.get()


def test_a_wish_in_the_turn_in_which_the_reader_has_waited_long_enough_is_heard(monkeypatch):
    async def play() -> None:
        pubsub, ears = PubSub(), Ears()
        client: Any = SimpleNamespace(pubsub=lambda: pubsub)
        first, second = Ear(ears), Ear(ears)
        await first.listen(client, "a")
        begun: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
        # The reader's time is over in the next turn; what is created while it begins to read runs right behind that.
        monkeypatch.setattr(async_ears, "READ_SECONDS", 0.0)
        pubsub.when_read = lambda: begun.set_result(asyncio.ensure_future(second.listen(client, "b")))
        third = asyncio.ensure_future(Ear(ears).listen(client, "c"))  # which makes the reader begin anew
        await (await begun)
        await third
        await ears.close()

    asyncio.run(play())


def test_a_line_that_ends_in_that_turn_tells_all_who_listen(monkeypatch):
    async def play() -> None:
        pubsub, ears = PubSub(), Ears()
        client: Any = SimpleNamespace(pubsub=lambda: pubsub)
        ear = Ear(ears)
        await ear.listen(client, "a")
        begun: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(async_ears, "READ_SECONDS", 0.0)
        pubsub.when_read = lambda: begun.set_result(asyncio.ensure_future(ears.close()))
        other = Ear(ears)
        await other.listen(client, "b")
        await (await begun)
        results = await asyncio.gather(ear.hear(60), other.hear(60), return_exceptions=True)
        assert [type(each).__name__ for each in results] == ["LinkDown", "LinkDown"]

    asyncio.run(play())


def test_who_closes_the_client_waits_for_no_server_that_hangs():
    async def play() -> None:
        pubsub, ears = PubSub(), Ears()
        connecting = asyncio.Event()
        gave_up: list[bool] = []

        async def connect() -> None:
            connecting.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                gave_up.append(True)
                raise

        pubsub.connect = connect  # type: ignore[method-assign]
        client: Any = SimpleNamespace(pubsub=lambda: pubsub)
        listens = asyncio.ensure_future(Ear(ears).listen(client, "a"))
        await connecting.wait()
        ears.line(client).join(Ear(ears), "b")  # another one who listens interrupts nobody
        await asyncio.sleep(0)
        assert not gave_up
        await ears.close()
        assert gave_up
        assert isinstance((await asyncio.gather(listens, return_exceptions=True))[0], LinkDown)

    asyncio.run(play())


def test_a_line_that_is_over_before_it_begins_connects_to_nobody():
    async def play() -> None:
        pubsub, ears = PubSub(), Ears()

        async def connect() -> None:
            raise AssertionError

        pubsub.connect = connect  # type: ignore[method-assign]
        client: Any = SimpleNamespace(pubsub=lambda: pubsub)
        ears.line(client)
        await ears.close()

    asyncio.run(play())
