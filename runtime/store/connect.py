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
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
from redis import exceptions as rx
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from stepwell.core.errors import StoreError, StoreUnfit, StoreUnreachable
from stepwell.core.redact import redact, redact_secrets, redact_url

__all__ = ["address_of", "async_connect", "connect", "explain"]

EXAMPLE = "redis://localhost:6379/0"
SCHEMES = ("redis", "rediss", "unix")
# The other options of redis-py's URLs would bring back its own retries or change how replies look.
OPTIONS = frozenset({"db", "username", "password"})
TLS_OPTIONS = frozenset(
    f"ssl_{name}" for name in ("ca_certs", "ca_path", "cert_reqs", "certfile", "check_hostname", "keyfile", "password")
)


def connect(
    url: str,
    *,
    socket_timeout: float = 5.0,
    blocking_timeout: float = 0.0,
    connect_timeout: float = 5.0,
    max_connections: int = 100,
    client_name: str = "stepwell",
) -> redis.Redis:
    """Return a client for a `redis://`, `rediss://` or `unix://` URL; it connects at its first command.

    Timeouts are seconds. `blocking_timeout` is the longest BLOCK that will be asked for: the socket waits at
    least a second longer than that. Raises StoreUnreachable if the URL is not one.
    """
    options = _options(socket_timeout, blocking_timeout, connect_timeout, max_connections, client_name)
    pool = redis.ConnectionPool.from_url(_checked(url), retry=Retry(NoBackoff(), 0), **options)
    return redis.Redis.from_pool(pool)


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
    options = _options(socket_timeout, blocking_timeout, connect_timeout, max_connections, client_name)
    pool = redis.asyncio.ConnectionPool.from_url(_checked(url), retry=AsyncRetry(NoBackoff(), 0), **options)
    return redis.asyncio.Redis.from_pool(pool)


def address_of(client: redis.Redis) -> str:
    """Return the URL a client talks to, for messages: without user, password and TLS options."""
    kwargs = client.get_connection_kwargs()
    db = f"/{kwargs['db']}" if kwargs.get("db") else ""
    if kwargs.get("path"):
        return f"unix://{kwargs['path']}"
    scheme = "rediss" if client.connection_pool.connection_class is redis.SSLConnection else "redis"
    return f"{scheme}://{kwargs.get('host') or 'localhost'}:{kwargs.get('port') or 6379}{db}"


def _options(
    socket_timeout: float, blocking_timeout: float, connect_timeout: float, max_connections: int, client_name: str
) -> dict[str, Any]:
    return {
        "socket_timeout": max(socket_timeout, blocking_timeout + 1.0 if blocking_timeout else 0.0),
        "socket_connect_timeout": connect_timeout,
        "retry_on_error": [],
        "decode_responses": False,
        "health_check_interval": 0,
        "protocol": 2,
        "max_connections": max_connections,
        "client_name": client_name,
    }


def _checked(url: str) -> str:
    url = url.strip()
    problem = _problem(url)
    if problem:
        raise StoreUnreachable(f'"{redact_url(url)}" is not a usable Redis URL: {problem}')
    return url


def _problem(url: str) -> str | None:
    """Say what is wrong with a URL and what to write instead; redis-py would silently use defaults for most of it."""
    escape = "a password with : / ? # @ or % in it must be percent-encoded"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"the port must be a number from 1 to 65535 ({escape})"
    if "://" not in url or parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        return f"it must begin with redis://, rediss:// or unix://, for example {EXAMPLE}"
    if re.search(r"\s", url) or parts.fragment or url.endswith("#"):
        return f"it has a space or a # in it ({escape})"
    if port == 0:
        return "the port must be a number from 1 to 65535"
    return (_unix_problem if parts.scheme == "unix" else _network_problem)(parts, escape) or _query_problem(parts)


def _network_problem(parts: SplitResult, escape: str) -> str | None:
    if parts.path.strip("/") and not re.fullmatch(r"/[0-9]{1,5}/?", parts.path):
        return f"after the host only a database number may follow, as in {EXAMPLE} ({escape})"
    if not parts.hostname and parts.netloc.rpartition("@")[2]:
        return f"the host is missing, write for example {EXAMPLE}"
    return None


def _unix_problem(parts: SplitResult, escape: str) -> str | None:
    if parts.hostname or parts.port or not parts.path.strip("/"):
        return f"unix:// needs an absolute path, for example unix:///run/redis/redis.sock ({escape})"
    return None


def _query_problem(parts: SplitResult) -> str | None:
    known = OPTIONS | TLS_OPTIONS if parts.scheme == "rediss" else OPTIONS
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            return f"unknown option {redact_url(name)!r}, use {', '.join(sorted(known))}"
        if name == "db" and not re.fullmatch(r"[0-9]{1,5}", value):
            return "db must be a number"
        if name == "ssl_cert_reqs" and value not in ("none", "optional", "required"):
            return "ssl_cert_reqs must be none, optional or required"
    return None


def explain(error: BaseException, url: str) -> StoreError:
    """Turn any error of redis-py into one sentence that says what happened at `url` and what to do.

    StoreUnfit means that the server answers but refuses to serve us as it is. No password is ever shown.
    """
    if isinstance(error, StoreError):
        return error
    # The asyncio client wraps what the handshake was refused for.
    while type(error) is rx.ConnectionError and isinstance(error.__cause__, rx.RedisError):
        error = error.__cause__
    where = f"Redis at {redact_url(url)}"
    detail = redact_secrets(redact(" ".join(str(error).split())), _secrets(url)).rstrip(".")
    found = _refusal(error, where, detail) or _broken_link(error, where, detail)
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


# First match wins: (name or code of the error, kind, what to say). `{detail}` is the server's own sentence.
_REFUSALS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("without any password configured", StoreUnreachable, "has no password set but the URL gives one: leave it out"),
    ("NOAUTH", StoreUnreachable, "wants a password: give it in the URL, redis://:PASSWORD@HOST:PORT"),
    ("Authentication required", StoreUnreachable, "wants a password: give it in the URL, redis://:PASSWORD@HOST:PORT"),
    ("WRONGPASS", StoreUnreachable, "refused the user name or password: correct them in the URL"),
    ("NOPERM", StoreUnfit, "does not let this user do what is needed ({detail}): extend its rights with ACL SETUSER"),
    ("READONLY", StoreUnfit, "is a read-only replica: give the URL of its primary"),
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
    ("MOVED", StoreUnfit, "is part of a Redis Cluster, which is not supported yet: give a server without cluster mode"),
    ("CLUSTERDOWN", StoreUnfit, "is a Redis Cluster, which is not supported yet: give a server without cluster mode"),
    ("CROSSSLOT", StoreUnfit, "is a Redis Cluster, which is not supported yet: give a server without cluster mode"),
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
    (rx.ClusterDownError, "CLUSTERDOWN"),
    (rx.ClusterCrossSlotError, "CROSSSLOT"),
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
                return kind(f"{where} {say.format(detail=detail)}")
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _broken_link(error: BaseException, where: str, detail: str) -> StoreError | None:
    """There was no proper conversation: name, network, socket, TLS or the wrong program at the other end."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            return StoreUnreachable(_tls(cause, where))
        if isinstance(cause, socket.gaierror):
            return StoreUnreachable(f"{where} was not found: its host name can't be resolved, check the spelling")
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError) and cause.errno in _SYSTEM:
            return StoreUnreachable(f"{where} {_SYSTEM[cause.errno]}")
    if isinstance(error, rx.TimeoutError | TimeoutError):
        tls = ", or without TLS (then write redis://)" if "rediss://" in where else ""
        return StoreUnreachable(f"{where} did not answer in time: is it overloaded, stopped, behind a firewall{tls}?")
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
