"""Kept connections: one `Connections` per event loop, closed with the loop.

Each request has a client with one connection to itself; clients wait for the next request to the same origin. A
shared pool of httpx looks at all its connections for each request: with 50 in flight that cost 3.6 ms of CPU a
request, against 0.8 ms at any number this way. How many may run at once is the worker's limit, not a pool's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from weakref import WeakKeyDictionary

import httpx

__all__ = ["Connections", "aclose", "new_client", "of_this_loop"]

IDLE_SECONDS = 15.0  # then a waiting connection is closed
IDLE_MAX = 200  # waiting connections of one loop
_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS)

Origin = tuple[str, str, int | None]


def new_client(tls: ssl.SSLContext) -> httpx.AsyncClient:
    """A client for one request at a time. Cookies are neither kept nor sent: clients serve many executions."""
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(verify=tls, limits=_ONE, cookies=no_cookies, headers={"User-Agent": "stepwell"})


class Connections:
    """Lends clients; belongs to one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[tuple[float, httpx.AsyncClient]]] = {}
        self._waiting = 0
        self._swept_at = 0.0
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    @contextlib.asynccontextmanager
    async def client(self, url: httpx.URL) -> AsyncIterator[httpx.AsyncClient]:
        """A client for a request to this URL. It is kept if the block ends well, and closed if it raises."""
        origin = (url.scheme, url.host, url.port)
        client = self._take(origin)
        try:
            yield client
        except BaseException:
            await client.aclose()
            raise
        await self._give_back(origin, client)

    async def aclose(self) -> None:
        """Close the connections that wait; those in use are closed when they come back."""
        self._closed = True
        waiting = [client for kept in self._idle.values() for _, client in kept]
        self._idle.clear()
        self._waiting = 0
        for client in waiting:
            await client.aclose()

    @property
    def waiting(self) -> int:
        """How many connections wait for a request."""
        return self._waiting

    def _take(self, origin: Origin) -> httpx.AsyncClient:
        kept = self._idle.get(origin)
        if kept:
            self._waiting -= 1
            return kept.pop()[1]  # the latest: the others may grow old and go
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return new_client(self._tls)

    async def _give_back(self, origin: Origin, client: httpx.AsyncClient) -> None:
        now = asyncio.get_running_loop().time()
        closing = self._expired(now) if self._waiting >= IDLE_MAX or now - self._swept_at >= 1.0 else []
        if self._closed or self._waiting >= IDLE_MAX:
            closing.append(client)
        else:
            self._idle.setdefault(origin, deque()).append((now, client))
            self._waiting += 1
        for old in closing:
            await old.aclose()

    def _expired(self, now: float) -> list[httpx.AsyncClient]:
        self._swept_at = now
        expired: list[httpx.AsyncClient] = []
        for origin, kept in list(self._idle.items()):
            while kept and now - kept[0][0] > IDLE_SECONDS:
                expired.append(kept.popleft()[1])
            if not kept:
                del self._idle[origin]
        self._waiting -= len(expired)
        return expired


_Holder = AsyncGenerator[Connections, None]
_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Connections, _Holder]] = WeakKeyDictionary()


async def of_this_loop() -> Connections:
    """The running loop's connections; made at the first call, closed by `aclose` or with the loop's generators."""
    loop = asyncio.get_running_loop()
    known = _by_loop.get(loop)
    if known is not None:
        return known[0]
    # A started async generator is what `asyncio.run` and `shutdown_asyncgens` wind up when a loop ends.
    connections = Connections()
    holder = _hold(connections)
    _by_loop[loop] = (connections, holder)
    await anext(holder)
    return connections


async def _hold(connections: Connections) -> _Holder:
    try:
        yield connections
    finally:
        await connections.aclose()


async def aclose() -> None:
    """Close the running loop's kept connections; the next request opens new ones."""
    known = _by_loop.pop(asyncio.get_running_loop(), None)
    if known is not None:
        await known[1].aclose()
