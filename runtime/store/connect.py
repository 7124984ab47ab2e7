"""Connections to Redis, and what their failures mean for a person.

A client made here never repeats a command by itself: whoever writes must know whether a write may have been
applied. It speaks RESP2: measured as fast as RESP3 here, it needs no HELLO (which some proxies and managed
services refuse) and switches off redis-py's maintenance notifications. Nothing is connected until first use.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
from redis import exceptions as rx
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import MasterNotFoundError as AsyncMasterNotFoundError
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool

from stepwell.core.errors import StoreError, StoreUnfit, StoreUnreachable
from stepwell.core.redact import Secrets, redact, redact_url
from stepwell.store.async_cluster import AsyncStoreClient, new_async_pool
from stepwell.store.cluster import StoreClient, masters_of, new_pool
from stepwell.store.nodes import seed_of
from stepwell.store.sentinel import async_sentinel_pool, sentinel_pool
from stepwell.store.troubles import causes
from stepwell.store.url import read_url

__all__ = ["address_of", "async_connect", "connect", "explain"]


def connect(
    url: str,
    *,
    socket_timeout: float = 5.0,
    blocking_timeout: float = 0.0,
    connect_timeout: float = 5.0,
    max_connections: int = 100,
    client_name: str = "stepwell",
) -> redis.Redis:
    """Return a client for a URL (see `stepwell.store.url`); it connects at its first command.

    Timeouts are seconds. `blocking_timeout` is the longest BLOCK that will be asked for: the socket waits at
    least a second longer than that. Raises StoreUnreachable if the URL is not one.
    """
    where = read_url(url)
    options = _options(socket_timeout, blocking_timeout, connect_timeout, client_name)
    options["retry"] = Retry(NoBackoff(), 0)
    if where.primary is not None:
        return StoreClient.on(sentinel_pool(where, options, max_connections))
    kind: type[redis.Connection] | type[redis.UnixDomainSocketConnection] = (
        redis.SSLConnection if where.tls else redis.Connection
    )
    if not where.hosts:
        kind = redis.UnixDomainSocketConnection
    pool = new_pool(connection_class=kind, max_connections=max_connections, **{**where.settings, **options})
    return StoreClient.on(pool, where.hosts if len(where.hosts) > 1 else ())


def async_connect(
    url: str,
    *,
    socket_timeout: float = 5.0,
    blocking_timeout: float = 0.0,
    connect_timeout: float = 5.0,
    max_connections: int = 100,
    client_name: str = "stepwell",
) -> redis.asyncio.Redis:
    """Return the asyncio twin of `connect`."""
    where = read_url(url)
    options = _options(socket_timeout, blocking_timeout, connect_timeout, client_name)
    options["retry"] = AsyncRetry(NoBackoff(), 0)
    if where.primary is not None:
        return AsyncStoreClient.on(async_sentinel_pool(where, options, max_connections))
    kind: type[AsyncConnection] = redis.asyncio.SSLConnection if where.tls else redis.asyncio.Connection
    if not where.hosts:
        kind = redis.asyncio.UnixDomainSocketConnection
    pool = new_async_pool(connection_class=kind, max_connections=max_connections, **{**where.settings, **options})
    return AsyncStoreClient.on(pool, where.hosts if len(where.hosts) > 1 else ())


def address_of(client: redis.Redis) -> str:
    """Return the URL a client talks to, for messages: without user, password and TLS options."""
    kwargs = client.get_connection_kwargs()
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"the primary {pool.service_name!r} of its Sentinels"
    db = f"/{kwargs['db']}" if kwargs.get("db") else ""
    if kwargs.get("path"):
        return f"unix://{kwargs['path']}"
    scheme = "rediss" if pool.connection_class is redis.SSLConnection else "redis"
    seeds = masters_of(client).seeds or (seed_of(kwargs),)
    return f"{scheme}://{','.join(f'{host}:{port}' for host, port in seeds)}{db}"


def _options(
    socket_timeout: float, blocking_timeout: float, connect_timeout: float, client_name: str
) -> dict[str, object]:
    return {
        "socket_timeout": max(socket_timeout, blocking_timeout + 1.0 if blocking_timeout else 0.0),
        "socket_connect_timeout": connect_timeout,
        "retry_on_error": [],
        "decode_responses": False,
        "health_check_interval": 0,
        "protocol": 2,
        "client_name": client_name,
    }


def explain(error: BaseException, url: str, waited: float = 0.0) -> StoreError:
    """Turn any error of redis-py into one sentence that says what happened at `url` and what to do.

    StoreUnfit means that the server answers but refuses to serve us as it is. No password is ever shown. `waited`: how
    many seconds an answer was waited for, if that is known.
    """
    if isinstance(error, StoreError):
        return error
    # The asyncio client wraps what the handshake was refused for, either one what a former primary of Sentinels says.
    while type(error) is rx.ConnectionError:
        wrapped = error.__cause__ or error.__context__
        if not isinstance(wrapped, rx.RedisError):
            break
        error = wrapped
    where = f"Redis at {redact_url(url)}"
    detail = Secrets(_secrets(url)).hide(redact(" ".join(str(error).split()))).rstrip(".")
    found = _refusal(error, where, detail) or _broken_link(error, where, detail, waited)
    return found or StoreError(f"{where} answered with an error: {detail or type(error).__name__}")


def _secrets(url: str) -> list[str]:
    """All that may be a credential in a URL, raw and decoded."""
    try:
        parts = urlsplit(url)
        found = [parts.password, *(v for k, v in parse_qsl(parts.query) if "password" in k)]
    except ValueError:
        found = []
    found.append(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
    return [form for secret in found if secret for form in (secret, unquote(secret))]


# Not as a whole URL: in what is shown, PASSWORD there would be taken for one.
_WANTS_PASSWORD = "wants a password: give it in the URL, as :PASSWORD@ before the host"
# What to do about a replica: of one server, and where Sentinels say which one it is.
_PRIMARY = (
    "give the URL of its primary, or try again if it was one a moment ago (a failover)",
    "its Sentinels have not yet found it another primary: try again, and look at their logs if it lasts",
)
# First match wins: (name or code of the error, kind, what to say). `{detail}` is the server's own sentence.
_REFUSALS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("without any password configured", StoreUnreachable, "has no password set but the URL gives one: leave it out"),
    ("NOAUTH", StoreUnreachable, _WANTS_PASSWORD),
    ("Authentication required", StoreUnreachable, _WANTS_PASSWORD),
    ("WRONGPASS", StoreUnreachable, "refused the user name or password: correct them in the URL"),
    ("NOPERM", StoreUnfit, "does not let this user do what is needed ({detail}): extend its rights with ACL SETUSER"),
    ("READONLY", StoreUnfit, "is a read-only replica: {primary}"),
    ("MASTERDOWN", StoreUnfit, "is a replica without its primary: give the URL of the primary"),
    ("OOM", StoreUnfit, "is full (its maxmemory is used up): raise maxmemory or free memory, then try again"),
    (
        "MISCONF",
        StoreUnfit,
        "can't save to its disk and so refuses writes: free disk space or repair its data directory (its log says why)",
    ),
    ("NOREPLICAS", StoreUnfit, "refuses writes without its replicas: start them or lower min-replicas-to-write"),
    ("LOADING", StoreUnreachable, "is still loading its data: try again in a moment"),
    ("BUSY", StoreUnreachable, "is busy with a long script: wait, or end it with SCRIPT KILL"),
    ("MOVED", StoreUnreachable, "is moving its data to another node of the cluster: try again in a moment"),
    ("TRYAGAIN", StoreUnreachable, "is moving its data to another node of the cluster: try again in a moment"),
    ("CLUSTERDOWN", StoreUnreachable, "is a Redis Cluster that does not serve all slots now ({detail}): repair it"),
    (
        "SELECT is not allowed in cluster mode",
        StoreUnreachable,
        "is a Redis Cluster, which has database 0 only: leave the number at the end of the URL out",
    ),
    (
        "cluster support disabled",
        StoreUnfit,
        "is no Redis Cluster, though its URL names several hosts: give the URL of one server",
    ),
    ("DENIED", StoreUnreachable, "is in protected mode: set a password there, or connect from its own host"),
    ("max number of clients", StoreUnreachable, "has no free connection: raise its maxclients or stop other clients"),
    ("DB index is out of range", StoreUnreachable, "has no database with that number: correct the end of the URL"),
)
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (rx.AuthenticationError, "WRONGPASS"),
    (rx.NoPermissionError, "NOPERM"),
    (rx.ReadOnlyError, "READONLY"),
    (rx.OutOfMemoryError, "OOM"),
    (rx.BusyLoadingError, "LOADING"),
    (rx.MasterDownError, "MASTERDOWN"),
    (rx.AskError, "MOVED"),
    (rx.TryAgainError, "TRYAGAIN"),
    (rx.ClusterDownError, "CLUSTERDOWN"),
)


def _refusal(error: BaseException, where: str, detail: str) -> StoreError | None:
    """The server answered, with a refusal."""
    if not isinstance(error, rx.RedisError):
        return None
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "")
    if isinstance(error, rx.ResponseError | rx.AuthenticationError) or code or "max number" in detail:
        # Redis before 7 wraps what a script's command was refused for: "ERR Error running script ...: -OOM ...".
        for sign, kind, say in _REFUSALS:
            if sign == code or re.search(rf"(^|[\s-]){re.escape(sign)}\b", detail):
                return kind(f"{where} {say.format(detail=detail, primary=_PRIMARY['+sentinel://' in where])}")
    return None


def _broken_link(error: BaseException, where: str, detail: str, waited: float) -> StoreError | None:
    """There was no proper conversation: name, network, socket, TLS or the wrong program at the other end."""
    if isinstance(error, MasterNotFoundError | AsyncMasterNotFoundError):
        return StoreUnreachable(f"{where} {detail}")
    for cause in causes(error):
        if isinstance(cause, ssl.SSLError):
            return StoreUnreachable(_tls(cause, where))
        if isinstance(cause, socket.gaierror):
            return StoreUnreachable(f"{where} was not found: its host name can't be resolved, check the spelling")
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError) and cause.errno in _SYSTEM:
            return StoreUnreachable(f"{where} {_SYSTEM[cause.errno]}")
    if isinstance(error, rx.TimeoutError | TimeoutError):
        tls = ", or without TLS (then write redis://)" if "rediss://" in where else ""
        time = f"within {waited:.0f} s" if waited >= 1 else "in time"
        check = f"is it Redis (check host and port), overloaded, stopped, behind a firewall{tls}?"
        return StoreUnreachable(f"{where} did not answer {time}: {check}")
    if isinstance(error, rx.MaxConnectionsError):
        return StoreUnreachable(f"{where}: all connections of this client are in use, use fewer threads at once")
    if isinstance(error, rx.InvalidResponse) or "rotocol error" in detail:
        return StoreUnreachable(f"{where} does not speak the Redis protocol: check host and port")
    if isinstance(error, rx.ConnectionError | OSError):
        why = "closed the connection" if "closed" in detail else f"can't be reached ({detail or type(error).__name__})"
        return StoreUnreachable(f"{where} {why}: is it running, and does it want TLS (rediss://)?")
    return None


_SYSTEM: dict[int | None, str] = {
    errno.ECONNREFUSED: "refused the connection: start it, or correct the address",
    errno.ENOENT: "is not there (no such socket): start it, or correct the path",
    errno.ENOTSOCK: "is not there (the path is not a socket): correct the path",
    errno.EACCES: "may not be opened by this user: ask for access to its socket",
    errno.EPERM: "may not be opened by this user: ask for access to its socket",
    errno.EHOSTUNREACH: "can't be reached (no route to the host): check the network",
    errno.ENETUNREACH: "can't be reached (no network): check the network",
    errno.EMFILE: "can't be opened: this process has too many open files, raise `ulimit -n`",
}


def _tls(error: ssl.SSLError, where: str) -> str:
    reason = re.sub(r"\[[^]]*\] *| *\(_ssl[^)]*\)", "", error.args[-1] if error.args else "no reason given").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{where} shows a certificate that is not trusted ({error.verify_message}): add ?ssl_ca_certs=FILE"
    if "wrong version" in reason or "record layer" in reason or "packet length" in reason:
        return f"{where} does not speak TLS: use redis:// instead of rediss://, or its TLS port"
    return f"{where} refused the TLS connection ({reason}): check ssl_certfile, ssl_keyfile and ssl_ca_certs"
