"""Can the promises be kept on this server? Facts first (`check_server`), judgement second (`require_fit`).

What a server does not tell (managed services hide CONFIG, stand-ins hide INFO) is None: unknown is no reason to
refuse, but a reason for a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis
from redis import exceptions as rx

from stepwell.core.errors import StoreError, StoreUnfit
from stepwell.store.cluster import Masters, masters_of
from stepwell.store.connect import address_of, explain
from stepwell.store.flight import LinkDown
from stepwell.store.slots import SLOTS

__all__ = ["ServerFacts", "check_server", "require_fit", "unfit"]

OLDEST_REDIS = (6, 2)
OLDEST_VALKEY = (8, 0)
PROBE_TTL_MS = 1000

Facts = Mapping[Any, object]  # a reply's names are text or bytes, as the server and redis-py like


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself; None where it does not tell.

    Of a Redis Cluster `masters` has the facts of each, and the others are those of the first.
    """

    address: str
    name: str = "redis"  # redis or valkey
    version: tuple[int, ...] | None = None
    mode: str | None = None  # standalone, cluster or sentinel
    role: str | None = None  # primary or replica
    primary: str | None = None  # host:port, where the role is replica
    cluster_enabled: bool | None = None
    maxmemory: int | None = None  # bytes, 0 = no limit
    maxmemory_policy: str | None = None
    used_memory: int | None = None  # bytes
    aof_enabled: bool | None = None
    appendfsync: str | None = None  # always, everysec or no
    replicas: int | None = None  # connected and in step
    min_replicas: int | None = None  # without so many it refuses writes
    write_error: StoreError | None = None  # why a test write was refused
    warnings: tuple[str, ...] = ()
    masters: tuple[ServerFacts, ...] = ()
    unserved_slots: int = 0

    @property
    def servers(self) -> tuple[ServerFacts, ...]:
        """The facts of each server that is written to: the masters of a cluster, or this one."""
        return self.masters or (self,)

    @property
    def title(self) -> str:
        """Name and version for messages, for example `Redis 7.0.15`."""
        version = ".".join(map(str, self.version)) if self.version else "of unknown version"
        return f"{'Valkey' if self.name == 'valkey' else 'Redis'} {version}"


def check_server(client: redis.Redis, *, probe_key: str = "stepwell:probe") -> ServerFacts:
    """Ask a server, or every master of its cluster, for all that decides whether it can be used, and try one write.

    `probe_key` is set for one second. Raises StoreUnreachable if there is no server to talk to.
    """
    address = address_of(client)
    masters = masters_of(client)
    if not masters.clustered:
        facts = _facts(client, address)
        if not facts.cluster_enabled:
            return replace(facts, write_error=_try_write(client, probe_key, address))
    return _cluster_facts(masters, address, probe_key)


def _cluster_facts(masters: Masters, address: str, probe_key: str) -> ServerFacts:
    try:
        slots = masters.learn()
    except LinkDown as error:
        raise explain(error.__cause__ or error, address) from error
    scheme = address.partition("://")[0].replace("unix", "redis")
    each = []
    for host, port in slots.masters:
        node, where = masters.node((host, port)), f"{scheme}://{host}:{port}"
        facts = _facts(node, where)
        key = slots.key_at((host, port), probe_key)
        each.append(facts if key is None else replace(facts, write_error=_try_write(node, key, where)))
    if not each:
        raise StoreUnfit(f"the cluster at {address} has no masters that serve slots: give each some, then try again")
    said = dict.fromkeys(warning for facts in each for warning in facts.warnings)
    return replace(
        each[0],
        address=address,
        masters=tuple(each),
        unserved_slots=slots.unserved,
        warnings=tuple(said),
    )


def _facts(client: redis.Redis, address: str) -> ServerFacts:
    _greet(client, address)
    info = _ask(client.info, address)
    policy = _text(info, "maxmemory_policy") or _config(client, "maxmemory-policy", address)
    appendfsync = _config(client, "appendfsync", address)
    role = {"master": "primary", "slave": "replica"}.get(_text(info, "role") or "")
    valkey = _text(info, "server_name") == "valkey" or "valkey_version" in info
    return ServerFacts(
        address=address,
        name="valkey" if valkey else "redis",
        version=_version(_text(info, "valkey_version") or _text(info, "redis_version")),
        mode=_text(info, "server_mode") or _text(info, "redis_mode"),
        role=role,
        primary=f"{info.get('master_host')}:{info.get('master_port')}" if role == "replica" else None,
        cluster_enabled=_flag(info, "cluster_enabled"),
        maxmemory=_number(info, "maxmemory"),
        maxmemory_policy=policy,
        used_memory=_number(info, "used_memory"),
        aof_enabled=_flag(info, "aof_enabled"),
        appendfsync=appendfsync,
        replicas=_replicas(info),
        min_replicas=_number({"": _config(client, "min-replicas-to-write", address)}, ""),
        warnings=_warnings(info, policy, appendfsync),
    )


def require_fit(facts: ServerFacts) -> None:
    """Raise StoreUnfit, with what to change, if a promise could not be kept on this server."""
    for problem in unfit(facts):
        raise problem


def unfit(facts: ServerFacts) -> Iterator[StoreError]:
    """Every reason why a promise could not be kept on this server, or on one of its cluster's."""
    if facts.unserved_slots:
        yield StoreUnfit(
            f"the cluster at {facts.address} serves only {SLOTS - facts.unserved_slots} of {SLOTS} slots: "
            "give every slot a master that lives (redis-cli --cluster fix), then try again"
        )
    for server in facts.servers:
        yield from _unfit(server)


def _unfit(facts: ServerFacts) -> Iterator[StoreError]:
    where = f"the server at {facts.address}"
    if facts.mode == "sentinel":
        yield StoreUnfit(
            f"{where} is a Sentinel: give the URL of the primary that it watches, or redis+sentinel://HOST:PORT/NAME "
            "with the name by which it knows that"
        )
    oldest = OLDEST_VALKEY if facts.name == "valkey" else OLDEST_REDIS
    if facts.version and facts.version < oldest:
        yield StoreUnfit(f"{where} is too old ({facts.title}): Redis 6.2 or newer or Valkey 8 or newer is needed")
    if facts.role == "replica":
        yield StoreUnfit(f"{where} is a read-only replica: give the URL of its primary ({facts.primary})")
    if facts.maxmemory and facts.maxmemory_policy not in (None, "noeviction"):
        yield StoreUnfit(
            f"{where} may evict data (maxmemory-policy {facts.maxmemory_policy}), which would lose executions: "
            "run CONFIG SET maxmemory-policy noeviction there, and put it into its configuration"
        )
    if facts.write_error:
        yield facts.write_error


def _greet(client: redis.Redis, address: str) -> None:
    """Connect, so that what comes later is an answer to a question and not to the handshake."""
    try:
        client.ping()
    except rx.NoPermissionError:
        return
    except (rx.RedisError, OSError) as error:
        patience = client.get_connection_kwargs().get("socket_timeout")
        raise explain(error, address, patience or 0.0) from error


def _ask(ask: Callable[[], Facts], address: str) -> Facts:
    """The answer, or nothing where the server refuses to tell; a broken connection or wrong password is raised."""
    try:
        return ask()
    except rx.ResponseError:
        return {}
    except (rx.RedisError, OSError) as error:
        raise explain(error, address) from error


def _config(client: redis.Redis, name: str, address: str) -> str | None:
    answer = _ask(lambda: client.config_get(name), address)
    return _text({str(_plain(key)): value for key, value in answer.items()}, name)


def _try_write(client: redis.Redis, key: str, address: str) -> StoreError | None:
    try:
        client.set(key, b"1", px=PROBE_TTL_MS)
    except rx.ResponseError as error:
        return explain(error, address)
    except (rx.RedisError, OSError) as error:
        raise explain(error, address) from error
    return None


def _warnings(info: Facts, policy: str | None, appendfsync: str | None) -> tuple[str, ...]:
    found = []
    if not info:
        found.append("the server does not answer INFO: its version, role and memory limit are unknown")
    if policy is None:
        found.append("the maxmemory-policy is unknown: make sure that it is noeviction")
    elif policy != "noeviction" and not _number(info, "maxmemory"):
        found.append(f"the maxmemory-policy is {policy}: as soon as a maxmemory is set, executions could be evicted")
    if _flag(info, "aof_enabled") is False:
        found.append(
            "the append-only file is off: a crash of the server loses all that happened since its last snapshot, if it"
            " makes any: turn it on with CONFIG SET appendonly yes, and in its configuration"
        )
    if appendfsync is None:
        found.append("the appendfsync setting is unknown (CONFIG GET is refused)")
    return tuple(found)


def _plain(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _text(info: Facts, name: str) -> str | None:
    value = _plain(info.get(name))
    return None if value is None or value == "" else str(value)


def _replicas(info: Facts) -> int | None:
    """How many replicas are connected and have the data; who is still being sent the first copy does not count."""
    connected = _number(info, "connected_slaves")
    if connected is None:
        return None
    states = [info.get(f"slave{place}") for place in range(connected)]
    return len([state for state in states if not isinstance(state, dict) or state.get("state") == "online"])


def _number(info: Facts, name: str) -> int | None:
    text = _text(info, name)
    return int(text) if text and text.isdigit() else None


def _flag(info: Facts, name: str) -> bool | None:
    number = _number(info, name)
    return None if number is None else bool(number)


def _version(text: str | None) -> tuple[int, ...] | None:
    numbers = [part for part in (text or "").split("-")[0].split(".") if part.isdigit()]
    return tuple(map(int, numbers)) or None
