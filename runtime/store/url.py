"""Redis URLs: what they say, and what is wrong with one. redis-py would silently use defaults for most mistakes.

`redis://host:port/db`, `rediss://` (TLS) and `unix://` name one server, which may be a node of a cluster.
Several hosts, `redis://a:7000,b:7001`, are nodes of one cluster, any of which may answer. `redis+sentinel://a:26379,b:26379/name/db`
(`rediss+sentinel://`) are the Sentinels that know where the primary called `name` is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stepwell.core.errors import StoreUnreachable
from stepwell.core.redact import redact_url
from stepwell.store.slots import Address

__all__ = ["ServerUrl", "read_url"]

EXAMPLE: Final = "redis://localhost:6379/0"
SENTINEL_EXAMPLE: Final = "redis+sentinel://host1:26379,host2:26379/NAME"
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_TRUE: Final = ("1", "t", "true", "y", "yes", "on")
_ESCAPE: Final = "a password with : / ? # @ or % in it must be percent-encoded"

# The other options of redis-py's URLs would bring back its own retries or change how replies look.
_OPTIONS: Final = frozenset({"db", "username", "password"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_TLS_OPTIONS: Final = frozenset(
    f"ssl_{name}" for name in ("ca_certs", "ca_path", "cert_reqs", "certfile", "check_hostname", "keyfile", "password")
)


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A URL taken apart. `settings` are redis-py's for a connection to the (first) server."""

    hosts: tuple[Address, ...]
    settings: dict[str, str | int | bool]
    tls: bool = False
    primary: str | None = None
    """The name by which Sentinels know the primary; then the hosts are Sentinels."""
    sentinel_settings: dict[str, str | int | bool] | None = None
    """Credentials that the Sentinels themselves want."""


def read_url(url: str) -> ServerUrl:
    """Take a URL apart. Raises StoreUnreachable, with what to write instead, for one that can't be used."""
    url = url.strip()
    problem = _problem(url)
    if problem:
        raise StoreUnreachable(f'"{redact_url(url)}" is not a usable Redis URL: {problem}')
    parts = urlsplit(url)
    tls = parts.scheme.startswith("rediss")
    settings = _settings(parts)
    if parts.scheme == "unix":
        return ServerUrl((), {**settings, "path": unquote(parts.path)})
    watched = parts.scheme.endswith("sentinel")
    hosts = _hosts(parts, SENTINEL_PORT if watched else REDIS_PORT)
    if watched:
        own = {name: settings.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        name = unquote(parts.path.strip("/").partition("/")[0])
        return ServerUrl(hosts, settings, tls, name, {name: value for name, value in own.items() if value})
    host, port = hosts[0]
    return ServerUrl(hosts, {**settings, **({"host": host} if host else {}), "port": port}, tls)


def _settings(parts: SplitResult) -> dict[str, str | int | bool]:
    """What a URL says about each connection, beside where it goes."""
    found: dict[str, str | int | bool] = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "ssl_check_hostname" in found:
        found["ssl_check_hostname"] = str(found["ssl_check_hostname"]).lower() in _TRUE
    userinfo, at, _ = parts.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    found |= {key: unquote(value) for key, value in (("username", username), ("password", password)) if at and value}
    database = "" if parts.scheme == "unix" else parts.path.strip("/").rpartition("/")[2]
    found["db"] = int(found.get("db") or (database if database.isdigit() else 0))
    return found


def _hosts(parts: SplitResult, default_port: int) -> tuple[Address, ...]:
    """The hosts of a URL. Raises ValueError for a port that is no number from 1 to 65535."""
    found = []
    for each in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"redis://{each}")
        if one.port == 0:
            raise ValueError("port 0")
        found.append((unquote(one.hostname or ""), one.port or default_port))
    return tuple(found)


def _problem(url: str) -> str | None:
    """Say what is wrong with a URL and what to write instead."""
    bad_port = f"the port must be a number from 1 to 65535 ({_ESCAPE})"
    try:
        parts = urlsplit(url)
    except ValueError:
        return bad_port
    if "://" not in url or parts.scheme not in _SCHEMES or not url.startswith(f"{parts.scheme}://"):
        return f"it must begin with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://: {EXAMPLE}"
    if re.search(r"\s", url) or parts.fragment or url.endswith("#"):
        return f"it has a space or a # in it ({_ESCAPE})"
    if parts.scheme == "unix":
        return _unix_problem(parts) or _query_problem(parts)
    try:
        hosts = _hosts(parts, REDIS_PORT)
    except ValueError:
        return bad_port
    find = _sentinel_problem if parts.scheme.endswith("sentinel") else _network_problem
    return find(parts, hosts) or _query_problem(parts)


def _network_problem(parts: SplitResult, hosts: tuple[Address, ...]) -> str | None:
    if parts.path.strip("/") and not re.fullmatch(r"/[0-9]{1,5}/?", parts.path):
        return f"after the host only a database number may follow, as in {EXAMPLE} ({_ESCAPE})"
    if len(hosts) > 1:
        if not all(host for host, _ in hosts):
            return "a host is missing between the commas, write for example redis://host1:7000,host2:7001"
        if parts.path.strip("/0") or dict(parse_qsl(parts.query)).get("db", "0").strip("0"):
            return "several hosts are nodes of a Redis Cluster, which has no database but 0: leave its number out"
    elif not hosts[0][0] and parts.netloc.rpartition("@")[2]:
        return f"the host is missing, write for example {EXAMPLE}"
    return None


def _sentinel_problem(parts: SplitResult, hosts: tuple[Address, ...]) -> str | None:
    if not all(host for host, _ in hosts):
        return f"the host of a Sentinel is missing, write for example {SENTINEL_EXAMPLE}"
    if not re.fullmatch(r"/[A-Za-z0-9._%-]+(/[0-9]{0,5})?/?", parts.path):
        return (
            "after the Sentinels must follow the name by which they know the primary, and perhaps a database number, "
            f"as in {SENTINEL_EXAMPLE}/0 ({_ESCAPE})"
        )
    return None


def _unix_problem(parts: SplitResult) -> str | None:
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.hostname or port or not parts.path.strip("/"):
        return f"unix:// needs an absolute path, for example unix:///run/redis/redis.sock ({_ESCAPE})"
    return None


def _query_problem(parts: SplitResult) -> str | None:
    known = _OPTIONS
    if parts.scheme.startswith("rediss"):
        known |= _TLS_OPTIONS
    if parts.scheme.endswith("sentinel"):
        known |= _SENTINEL_OPTIONS
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            return f"unknown option {redact_url(name)!r}, use {', '.join(sorted(known))}"
        if name == "db" and not re.fullmatch(r"[0-9]{1,5}", value):
            return "db must be a number"
        if name == "ssl_cert_reqs" and value not in ("none", "optional", "required"):
            return "ssl_cert_reqs must be none, optional or required"
    return None
