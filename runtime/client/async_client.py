"""The asyncio client."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType

import redis.asyncio

from stepwell.actors.kit.clock import SystemClock
from stepwell.client.address import Place, promised, resolve
from stepwell.client.async_wire import AsyncWire
from stepwell.client.commanding import CommandResult
from stepwell.client.reading import Dicts
from stepwell.client.searching import Page
from stepwell.client.talk import Talk
from stepwell.client.waiting import Json
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError
from stepwell.core.moments import Moment
from stepwell.core.overview import Overview
from stepwell.core.redact import redact_url
from stepwell.flow.definitions import FlowLike
from stepwell.store import connect as connections
from stepwell.store.events import Gap, Seen

__all__ = ["AsyncClient"]


class AsyncClient:
    """`Client` for asyncio: the same arguments, methods and errors. The tasks of one event loop may share one.

    The environment is read here; an embedded server is started at the first request, or by `async with`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        data_dir: str | Path | None = None,
        namespace: str = "stepwell",
        partitions: int | None = None,
        durability: str | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        connect: Callable[[str], redis.asyncio.Redis] = connections.async_connect,
    ) -> None:
        clock = clock or SystemClock()
        self._talk = Talk(namespace, partitions, clock, new_id, promised(durability))
        self._namespace = namespace
        self._address = resolve(url, data_dir)
        self._wire = AsyncWire(self._address, connect, self._talk.view, clock, on_join=self._joined)
        self._leave: weakref.finalize[[], AsyncClient] | None = None

    async def start(
        self,
        flow: str | FlowLike,
        input: Mapping[str, object] | None = None,
        execution_id: str | None = None,
        *,
        attributes: Mapping[str, object] | None = None,
        unchecked: bool = False,
    ) -> str:
        """Start an execution and return its id; see `Client.start`."""
        return await self._wire.run(self._talk.start(flow, input, execution_id, unchecked, attributes))

    async def result(self, execution_id: str, timeout: float | None = None) -> Json:
        """Wait for the end of an execution and return its result; see `Client.result`."""
        return await self._wire.run(self._talk.result(execution_id, timeout))

    async def describe(self, execution_id: str) -> dict[str, Json]:
        """All that is known about an execution; see `Client.describe`."""
        return await self._wire.run(self._talk.describe(execution_id))

    async def list(
        self,
        status: str | None = None,
        flow: str | None = None,
        limit: int = 100,
        *,
        error: str | None = None,
        attributes: Mapping[str, object] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        backing_off: bool = False,
        step: str | None = None,
    ) -> Page:
        """Executions, the latest first, page by page; see `Client.list`."""
        found = self._talk.list(
            status,
            flow,
            limit,
            error=error,
            attributes=attributes,
            since=since,
            until=until,
            cursor=cursor,
            backing_off=backing_off,
            step=step,
        )
        return await self._wire.run(found)

    async def retry(self, execution_id: str, timeout: float | None = 10.0) -> CommandResult:
        """Bring a failed or parked execution back, or end current backoffs now; see `Client.retry`."""
        return await self._wire.run(self._talk.retry(execution_id, timeout))

    async def cancel(self, execution_id: str, timeout: float | None = 10.0) -> CommandResult:
        """Cancel an execution; see `Client.cancel`."""
        return await self._wire.run(self._talk.cancel(execution_id, timeout))

    async def signal(
        self, execution_id: str, name: str, payload: object = None, timeout: float | None = 10.0
    ) -> CommandResult:
        """Send a signal; see `Client.signal`."""
        return await self._wire.run(self._talk.signal(execution_id, name, payload, timeout))

    async def dead_letters(
        self,
        limit: int = 100,
        *,
        reason: str | None = None,
        partition: int | str | None = None,
        text: str | None = None,
    ) -> Dicts:
        """What could not be applied, newest first; see `Client.dead_letters`."""
        return await self._wire.run(self._talk.dead_letters(limit, reason, partition, text))

    async def dead_letter(self, letter_id: str) -> dict[str, Json]:
        """One dead letter; see `Client.dead_letter`."""
        return await self._wire.run(self._talk.dead_letter(letter_id))

    async def replay_letter(self, letter_id: str) -> None:
        """Send a dead letter's entry again; see `Client.replay_letter`."""
        await self._wire.run(self._talk.replay_letter(letter_id))

    async def drop_letter(self, letter_id: str) -> None:
        """Remove a dead letter for good; see `Client.drop_letter`."""
        await self._wire.run(self._talk.drop_letter(letter_id))

    async def events(
        self,
        execution_id: str | None = None,
        *,
        since: Moment | float | None = None,
        follow: bool = True,
        stay: bool = False,
        away: Callable[[StoreError | None], None] | None = None,
    ) -> AsyncIterator[Seen | Gap]:
        """What happens, as it is recorded; see `Client.events`."""
        following = self._talk.events(execution_id, since, follow, stay, self._wire.in_words(away))
        while told := await self._wire.run(following.more()):
            for each in told:
                yield each

    async def now_ms(self) -> int:
        """The time now, by the server's clock; see `Client.now_ms`."""
        return await self._wire.run(self._talk.now_ms())

    async def workers(self) -> Dicts:
        """The workers that live; see `Client.workers`."""
        return await self._wire.run(self._talk.workers())

    async def why_idle(self) -> str:
        """Why no worker is seen at work; see `Client.why_idle`."""
        return await self._wire.run(self._talk.why_idle())

    async def overview(self, before: Overview | None = None, limit: int = 20) -> Overview:
        """The namespace at a glance; see `Client.overview`."""
        return await self._wire.run(self._talk.overview(before, limit))

    async def close(self) -> None:
        """Close the connections; the last user of an embedded server stops it. Closing twice is harmless."""
        if self._leave is not None:
            self._leave.detach()
        await self._wire.close()

    async def __aenter__(self) -> AsyncClient:
        await self._wire.join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        where = redact_url(self._address.url) if self._address.url else str(self._address.data_dir)
        return f"AsyncClient({where!r}, namespace={self._namespace!r})"

    def _joined(self, place: Place) -> None:
        self._leave = weakref.finalize(self, place.leave)
