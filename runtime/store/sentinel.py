"""Connections to a primary that Sentinels watch: each new one asks them where it is.

After a failover connections to the former primary break, or answer READONLY and are closed; the next one is made to the
new primary. Nothing here repeats a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import redis.asyncio.sentinel as async_sentinel
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from stepwell.store.url import ServerUrl

__all__ = ["async_sentinel_pool", "sentinel_pool"]

# A Sentinel that hangs must not hold up what another one knows.
ASK_SECONDS: Final = 0.5


# redis-py does not annotate these.
_Sentinel = cast(Callable[..., Sentinel], Sentinel)
_Pool = cast(Callable[..., SentinelConnectionPool], SentinelConnectionPool)
_AsyncSentinel = cast(Callable[..., async_sentinel.Sentinel], async_sentinel.Sentinel)
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
