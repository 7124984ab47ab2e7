"""Connections to a primary that Sentinels watch: each new one asks them where it is.

After a failover connections to the former primary break, or answer READONLY and are closed; the next one is made to the
new primary. Nothing here repeats a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import redis.asyncio.sentinel as async_sentinel
from redis.exceptions import RedisError
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from stepwell.store.slots import Address
from stepwell.store.url import ServerUrl

__all__ = ["AsyncWatchers", "Findings", "Watchers", "async_sentinel_pool", "sentinel_pool"]

# A Sentinel that hangs must not hold up what another one knows.
ASK_SECONDS: Final = 0.5


class Watchers(Sentinel):
    """The Sentinels of one URL, asked in turn; what none of them knows is told in a sentence about Redis."""

    def discover_master(self, service_name: str) -> Address:
        """Where the primary of that name is. Raises MasterNotFoundError."""
        found = Findings(service_name)
        for sentinel in list(self.sentinels):
            try:
                masters = sentinel.sentinel_masters()
            except RedisError as error:
                found.silent(error)
                continue
            address = found.heard(masters)
            if address is not None:
                self.sentinels.remove(sentinel)
                self.sentinels.insert(0, sentinel)
                return address
        raise MasterNotFoundError(found.verdict)


class AsyncWatchers(async_sentinel.Sentinel):
    """The asyncio twin of `Watchers`."""

    async def discover_master(self, service_name: str) -> Address:
        """Where the primary of that name is. Raises MasterNotFoundError."""
        found = Findings(service_name)
        for sentinel in list(self.sentinels):
            try:
                masters = await sentinel.sentinel_masters()
            except RedisError as error:
                found.silent(error)
                continue
            address = found.heard(masters)
            if address is not None:
                self.sentinels.remove(sentinel)
                self.sentinels.insert(0, sentinel)
                return address
        raise async_sentinel.MasterNotFoundError(found.verdict)


class Findings:
    """What Sentinels have said about one primary."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known = False
        self._answered = False
        self._last: RedisError | None = None

    def silent(self, error: RedisError) -> None:
        """A Sentinel did not answer."""
        self._last = error

    def heard(self, masters: object) -> Address | None:
        """A Sentinel has answered; the address, where it knows the primary and sees it alive."""
        self._answered = True
        state = masters.get(self._name) if isinstance(masters, dict) else None
        if not state:
            return None
        self._known = True
        if not state["is_master"] or state["is_sdown"] or state["is_odown"]:
            return None
        return (str(state["ip"]), int(state["port"]))

    @property
    def verdict(self) -> str:
        """Why there is no address, as the end of a sentence that begins with where Redis is."""
        if not self._answered:
            why = " ".join(str(self._last).split()).rstrip(".")
            return f"has no Sentinel that answers ({why}): check their addresses, and sentinel_password in the URL"
        if not self._known:
            return f"is watched by Sentinels that know no primary named {self._name!r}: correct the name in the URL"
        return "has no primary that lives, its Sentinels say: wait for their failover, or start it"


# redis-py does not annotate these.
_Sentinel = cast(Callable[..., Watchers], Watchers)
_Pool = cast(Callable[..., SentinelConnectionPool], SentinelConnectionPool)
_AsyncSentinel = cast(Callable[..., AsyncWatchers], AsyncWatchers)
_AsyncPool = cast(Callable[..., async_sentinel.SentinelConnectionPool], async_sentinel.SentinelConnectionPool)


def sentinel_pool(where: ServerUrl, options: Mapping[str, object], max_connections: int) -> SentinelConnectionPool:
    """Connections to the primary of a `redis+sentinel://` URL."""
    settings = _settings(where, options)
    manager = _Sentinel(where.hosts, sentinel_kwargs=_of_sentinels(where, options), **settings)
    kind = SentinelManagedSSLConnection if where.tls else SentinelManagedConnection
    name = where.primary
    return _Pool(name, manager, connection_class=kind, max_connections=max_connections, **settings)


def async_sentinel_pool(
    where: ServerUrl, options: Mapping[str, object], max_connections: int
) -> async_sentinel.SentinelConnectionPool:
    """The asyncio twin of `sentinel_pool`."""
    settings = _settings(where, options)
    manager = _AsyncSentinel(where.hosts, sentinel_kwargs=_of_sentinels(where, options), **settings)
    kind = async_sentinel.SentinelManagedSSLConnection if where.tls else async_sentinel.SentinelManagedConnection
    return _AsyncPool(where.primary, manager, connection_class=kind, max_connections=max_connections, **settings)


def _settings(where: ServerUrl, options: Mapping[str, object]) -> dict[str, object]:
    return {**where.settings, **options}


def _of_sentinels(where: ServerUrl, options: Mapping[str, object]) -> dict[str, object]:
    """How Sentinels are spoken to: with credentials and patience of their own, with the TLS files of the servers."""
    tls = {key: value for key, value in where.settings.items() if key.startswith("ssl_")}
    return {
        **options,
        **tls,
        **({"ssl": True} if where.tls else {}),
        **(where.sentinel_settings or {}),
        "socket_timeout": ASK_SECONDS,
        "socket_connect_timeout": ASK_SECONDS,
    }
