"""Gathers what `guarantees` judges: asks servers, namespace and workers, and changes nothing but a probe key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import redis
from redis.exceptions import RedisError, ResponseError

from stepwell.core.errors import StoreError, UsageError
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.store import queries
from stepwell.store.check import ServerFacts, check_server
from stepwell.store.cluster import masters_of
from stepwell.store.connect import explain
from stepwell.store.durability import RELAXED, Durability, parse_durability
from stepwell.store.flight import LinkDown
from stepwell.store.guarantees import Facts, NamespaceFacts, Topology, WorkerFacts
from stepwell.store.keys import MAX_PARTITIONS, Keys
from stepwell.store.link import Link
from stepwell.store.replies import items_of, number, text, time_us
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.strangers import family_of
from stepwell.store.workers import Heartbeat, heartbeats_of, living_of

__all__ = ["examine", "topology_of"]

# The best of so many questions tells a clock's offset: the quickest answer has the smallest error.
CLOCK_ASKS: Final = 3


def examine(
    client: redis.Redis,
    namespace: str,
    *,
    wall_ms: Callable[[], float],
    version: str,
    partitions: int | None = None,
    durability: Durability | None = None,
) -> Facts:
    """The facts of now. `durability` is what shall be in force; None: what the namespace says, else relaxed.

    `wall_ms` is this host's clock, `partitions` how many are expected. Raises StoreError if nobody answers.
    """
    server = check_server(client, probe_key=f"{namespace}:probe")
    link = Link(client, Keys(namespace), Scripts())
    try:
        space, workers = _namespace(link, namespace)
    except LinkDown as error:
        raise explain(error.__cause__ or error, server.address) from error
    return Facts(
        server=server,
        durability=durability or _told(space.durability),
        topology=topology_of(client, server),
        namespace=space,
        partitions=partitions,
        workers=workers,
        version=version,
        clock_ms=_clocks(client, server, wall_ms),
    )


def topology_of(client: redis.Redis, server: ServerFacts) -> Topology:
    """How the client finds the servers that it writes to."""
    if server.masters or server.cluster_enabled:
        return "cluster"
    return "sentinel" if getattr(client.connection_pool, "sentinel_manager", None) is not None else "single"


def _told(durability: str | None) -> Durability:
    try:
        return RELAXED if durability is None else parse_durability(durability)
    except UsageError:
        return RELAXED  # a worker refuses to start on it; `guarantees` says so


def _clocks(client: redis.Redis, server: ServerFacts, wall_ms: Callable[[], float]) -> dict[str, float]:
    asked = {server.address: client}
    if server.masters:
        masters = masters_of(client)
        asked = {f"{host}:{port}": masters.node((host, port)) for host, port in masters.learn().masters}
    offsets = {where: _offset(node, wall_ms) for where, node in asked.items()}
    return {where: offset for where, offset in offsets.items() if offset is not None}


def _offset(client: redis.Redis, wall_ms: Callable[[], float]) -> float | None:
    """By how many ms the server's clock is ahead of ours; None where it does not tell the time."""
    found: list[tuple[float, float]] = []
    for _ in range(CLOCK_ASKS):
        before = wall_ms()
        try:
            at_us = time_us(client.time())
        except ResponseError:
            return None
        after = wall_ms()
        found.append((after - before, at_us / 1000 - (before + after) / 2))
    return min(found)[1]


def _namespace(link: Link, name: str) -> tuple[NamespaceFacts, tuple[WorkerFacts, ...]]:
    blank = Keys(name)
    meta, time, beats = link.attempt(
        [["HMGET", blank.meta, "format", "partitions", "durability"], ["TIME"], ["HGETALL", blank.workers]]
    )
    said: list[object] = [None] * 3 if isinstance(meta, RedisError) else items_of(meta)
    format_, partitions = _whole(said[0]), _whole(said[1])
    usable = partitions if partitions is not None and 1 <= partitions <= MAX_PARTITIONS else DEFAULT_PARTITIONS
    keys = Keys(name, usable)
    space = NamespaceFacts(
        name=name,
        format=format_,
        partitions=partitions,
        durability=None if said[2] is None else text(said[2]),
        executions=_counts(link, keys),
        dead_letters=sum(_lengths(link, [keys.ingress_dead, *(part.dead for part in keys.parts)])),
        ingress=sum(_lengths(link, [keys.ingress])),
        damage=tuple(_damage(link, keys)),
    )
    living: list[Heartbeat] = []
    if not isinstance(time, RedisError) and not isinstance(beats, RedisError):
        living = living_of(heartbeats_of(beats), -(-time_us(time) // 1000))
    return space, tuple(_worker(beat) for beat in living)


def _worker(beat: Mapping[str, object]) -> WorkerFacts:
    said = {name: value for name in ("version", "durability") if isinstance(value := beat.get(name), str)}
    counts = {name: value for name in ("format", "left_alone") if type(value := beat.get(name)) is int}
    return WorkerFacts(
        str(beat["id"]), said.get("version"), said.get("durability"), counts.get("format"), counts.get("left_alone", 0)
    )


def _counts(link: Link, keys: Keys) -> dict[str, int]:
    query = queries.counts(keys)
    try:
        return query.parse(link.call(query.commands))
    except StoreError:
        return {}  # a key of a foreign type is told by name


def _lengths(link: Link, streams: list[str]) -> list[int]:
    asked: list[Command] = [["XLEN", stream] for stream in streams]
    return [0 if isinstance(raw, RedisError) else number(raw) for raw in link.attempt(asked)]


def _damage(link: Link, keys: Keys) -> Iterator[str]:
    """Keys of the namespace that hold something else than they should."""
    names = [keys.meta, keys.workers, keys.shards, keys.vitals, keys.ingress, keys.ingress_dead]
    for part in keys.parts:
        names += [part.inbox, part.outbox, part.dead, part.events, part.live, *part.by.values()]
        names += [part.lease, part.epoch, part.seq, part.suspects, part.backoff]
    expected = {name: family.kind for name in names if (family := family_of(name)) is not None}
    asked: list[Command] = [["TYPE", key] for key in expected]
    for (key, kind), raw in zip(expected.items(), link.attempt(asked), strict=True):
        if not isinstance(raw, RedisError) and text(raw) not in ("none", kind):
            yield key


def _whole(raw: object) -> int | None:
    try:
        return None if raw is None else number(raw)
    except ValueError:
        return -1
