"""Which guarantee is in force: judgements over facts, in words for people and as labels for a metric. No I/O.

A finding is `broken` where a promise can't be kept, a `warning` where one is weaker than it could be, and else `ok`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from stepwell.core.errors import StoreUnfit, UsageError
from stepwell.store.check import ServerFacts, unfit
from stepwell.store.durability import RELAXED, Durability, parse_durability, require_durable, slow_mode
from stepwell.store.namespace import FORMAT

__all__ = ["Facts", "Finding", "Level", "NamespaceFacts", "Topology", "WorkerFacts", "judge", "labels", "undone"]

Level: TypeAlias = Literal["ok", "warning", "broken"]
Topology: TypeAlias = Literal["single", "cluster", "sentinel"]

# Leases and due times follow the server's clock; beyond this, logs and times on this host mislead.
CLOCK_MS_MAX: Final = 1000
# Beyond this the masters of a cluster disagree about what is due and who is alive.
MASTERS_MS_MAX: Final = 2000
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One judgement: what it is about, how it stands, and what to do about it ('' where nothing is to be done)."""

    level: Level
    topic: str
    text: str
    to_do: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a living shard says of itself; None where it is of a version that does not say it."""

    id: str
    version: str | None = None
    durability: str | None = None
    format: int | None = None
    left_alone: int = 0  # rows and entries of a newer format that lie in its partitions


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace as it is in Redis; `format`, `partitions` and `durability` are None where it has not been made."""

    name: str = "stepwell"
    format: int | None = None
    partitions: int | None = None
    durability: str | None = None
    executions: Mapping[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    ingress: int = 0  # entries that wait there
    damage: tuple[str, ...] = ()  # keys that are not what they should be


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is judged. Offsets are ms by which clocks are ahead of ours, by server; `partitions` those expected."""

    server: ServerFacts
    durability: Durability = RELAXED
    topology: Topology = "single"
    namespace: NamespaceFacts = NamespaceFacts()
    partitions: int | None = None
    workers: tuple[WorkerFacts, ...] = ()
    version: str = ""
    clock_ms: Mapping[str, float] = field(default_factory=dict)


def judge(facts: Facts) -> list[Finding]:
    """Everything that decides whether the promises hold, in a fixed order."""
    return [
        *_server(facts),
        *_durability(facts),
        *(Finding("ok", "a crash undoes", sentence) for sentence in undone(facts)),
        *_clocks(facts),
        *_namespace(facts),
        *_workers(facts),
    ]


def undone(facts: Facts) -> Iterator[str]:
    """What a crash of the server can undo, and what a failover can, in plain words."""
    server = facts.server
    mode = "relaxed" if list(_undurable(facts)) else facts.durability.mode
    yield f"power loss or kernel crash of {_host(facts)}: {_crash(server, mode)}"
    yield f"kill -9 of the server process alone: {_killed(server, mode)}"
    if server.replicas or facts.topology != "single":
        yield f"failover to a replica: {_failover(facts.durability)}"
    yield (
        "in each case: steps that were undone run again with the same idempotency keys, unless a living worker still"
        " has them in memory and restores them"
    )


def labels(facts: Facts) -> dict[str, str]:
    """The same as labels of a metric, from closed sets but for the version."""
    servers = facts.server.servers
    weakest = min((each.replicas for each in servers if each.replicas is not None), default=None)
    broken = any(each.level == "broken" for each in judge(facts))
    return {
        "server": facts.server.title,
        "topology": facts.topology,
        "durability": str(facts.durability),
        "aof": _one([_aof(each) for each in servers]),
        "eviction": _one([each.maxmemory_policy or UNKNOWN for each in servers]),
        "replicas": UNKNOWN if weakest is None else str(weakest),
        "kept": "no" if broken else "yes",
    }


def _one(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else "mixed"


def _aof(server: ServerFacts) -> str:
    return (
        "off"
        if server.aof_enabled is False
        else UNKNOWN
        if server.aof_enabled is None
        else server.appendfsync or UNKNOWN
    )


def _host(facts: Facts) -> str:
    return "a server's host" if facts.topology != "single" else "the server's host"


def _crash(server: ServerFacts, mode: str) -> str:
    if mode == "aof":
        return "nothing that was acknowledged: each write waits for the disk"
    if server.aof_enabled is False:
        return "all that happened since the last snapshot, if it makes any"
    known = {
        "always": "nothing that was acknowledged: the server writes to the disk before it answers",
        "everysec": "the last second or two",
        "no": "what the system had not written to the disk yet, often the last 30 seconds",
    }
    return known.get(server.appendfsync or "", "unknown, as the server does not say when it writes to the disk")


def _killed(server: ServerFacts, mode: str) -> str:
    if mode == "aof":
        return "nothing that was acknowledged: each write waits for the disk"
    if server.aof_enabled is False:
        return "all that happened since the last snapshot, if it makes any"
    if server.aof_enabled is None:
        return "unknown, as it does not say whether it keeps an append-only file"
    if server.appendfsync in ("always", "no"):
        return "nothing that was acknowledged (the kernel still writes it)"
    # The server holds writes back while an fsync of the second before goes on: flushAppendOnlyFile in its aof.c.
    return "nothing that was acknowledged (the kernel still writes it), or up to two seconds if the disk was behind"


def _failover(durability: Durability) -> str:
    if durability.mode == "replicated":
        return f"nothing that was acknowledged, if a replica takes over that has it ({durability.replicas} have)"
    return "what the replica had not got yet, most often the last milliseconds"


def _server(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    yield Finding("ok", "server", f"{server.title} at {server.address}, {_shape(facts)}")
    yield from (Finding("broken", "server", str(error)) for error in unfit(server))
    yield from (Finding("warning", "server", warning) for warning in server.warnings)
    for each in server.servers:
        where = "" if len(server.servers) == 1 else f"{each.address}: "
        policy = each.maxmemory_policy or UNKNOWN
        limit = f"limit {_mib(each.maxmemory)}, policy {policy}" if each.maxmemory else f"no limit, policy {policy}"
        used = "" if each.used_memory is None else f"{_mib(each.used_memory)} used, "
        yield Finding("ok", "memory", f"{where}{used}{limit}")
        if each.maxmemory and each.used_memory is not None and each.used_memory > 0.9 * each.maxmemory:
            yield Finding(
                "warning",
                "memory",
                f"{where}it is nearly full: writes are refused when it is, and everything waits",
                "raise maxmemory, or start fewer executions",
            )


def _shape(facts: Facts) -> str:
    if facts.topology == "cluster":
        return f"a cluster of {len(facts.server.servers)} masters"
    return "found by Sentinel" if facts.topology == "sentinel" else "a single server"


def _mib(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / 1024 / 1024:,.0f} MiB"


def _durability(facts: Facts) -> Iterator[Finding]:
    durability = facts.durability
    meaning = {
        "relaxed": "a write counts when the server has executed it",
        "aof": "a write counts when it is on the server's disk",
        "replicated": f"a write counts when so many replicas have it: {durability.replicas}",
    }[durability.mode]
    yield Finding("ok", "durability", f"{durability}: {meaning}")
    for problem in _undurable(facts):
        yield Finding("broken", "durability", problem)
    slow = slow_mode(durability, facts.server)
    if slow:
        yield Finding("warning", "durability", slow)
    yield from _replication(facts)


def _undurable(facts: Facts) -> Iterator[str]:
    """Why the mode can't be had."""
    for each in facts.server.servers:
        try:
            require_durable(facts.durability, each)
        except StoreUnfit as error:
            yield str(error)


def _replication(facts: Facts) -> Iterator[Finding]:
    for each in facts.server.servers:
        if each.replicas is None:
            continue
        where = "" if len(facts.server.servers) == 1 else f"{each.address}: "
        least = each.min_replicas or 0
        yield Finding("ok", "replicas", f"{where}{each.replicas} connected and in step; writes need {least}")
        if least > each.replicas:
            yield Finding(
                "broken",
                "replicas",
                f"{where}it refuses writes until {least} replicas are connected (min-replicas-to-write)",
                "connect more, or lower min-replicas-to-write",
            )
        elif facts.topology != "single" and not each.replicas:
            # min-replicas-to-write would stop all writes here, so it must not be advised.
            yield Finding(
                "warning",
                "replicas",
                f"{where}there is none: nobody takes over when this server is away",
                "connect one",
            )
        elif facts.topology != "single" and not least and facts.durability.mode != "replicated":
            yield Finding(
                "warning",
                "replicas",
                f"{where}a primary that is cut off goes on taking writes, which are lost when its replica takes over",
                "set min-replicas-to-write 1 there, or use durability replicated",
            )


def _clocks(facts: Facts) -> Iterator[Finding]:
    offsets = facts.clock_ms
    for server, offset in offsets.items():
        text = f"{server} is {abs(offset):,.0f} ms {'ahead of' if offset >= 0 else 'behind'} this host"
        if abs(offset) <= CLOCK_MS_MAX:
            yield Finding("ok", "clock", text)
        else:
            yield Finding(
                "warning",
                "clock",
                f"{text}: workers follow the server's clock, but logs of this host and times in Redis don't agree",
                "let NTP keep both",
            )
    spread = max(offsets.values(), default=0.0) - min(offsets.values(), default=0.0)
    if spread > MASTERS_MS_MAX:
        yield Finding(
            "warning",
            "clock",
            f"the masters' clocks differ by {spread:,.0f} ms: delays and leases are off by so much after a failover",
            "let NTP keep them",
        )


def _namespace(facts: Facts) -> Iterator[Finding]:
    space = facts.namespace
    if space.format is None and space.partitions is None:
        yield Finding("ok", "namespace", f"{space.name!r} has not been made yet: the first worker or client makes it")
        return
    counted = ", ".join(f"{count:,} {status}" for status, count in space.executions.items() if count) or "no executions"
    yield Finding("ok", "namespace", f"{space.name!r} has {space.partitions} partitions: {counted}")
    if (space.format or 0) > FORMAT:
        yield Finding(
            "broken",
            "namespace",
            f"{space.name!r} has format {space.format}, made by a newer version; this one knows {FORMAT}",
            "upgrade this version",
        )
    if facts.partitions is not None and space.partitions != facts.partitions:
        yield Finding(
            "broken",
            "namespace",
            f"{space.name!r} was made with {space.partitions} partitions, and {facts.partitions} are expected:"
            " a worker with that setting refuses to start",
            f"set partitions to {space.partitions}, or use another namespace",
        )
    if space.durability is not None and space.durability != str(facts.durability):
        yield Finding(
            "warning" if _is_mode(space.durability) else "broken",
            "durability",
            f"{space.name!r} has durability {space.durability}, not {facts.durability}: all who write there use that",
            f"stop all workers, then start one with --durability {facts.durability}",
        )
    for key in space.damage:
        yield Finding("broken", "namespace", f"the key {key} is not of the type it should be", "rename or delete it")
    if space.dead_letters:
        yield Finding(
            "warning",
            "dead letters",
            f"{space.dead_letters:,} commands or starts could not be applied",
            "look at them: stepwell dead list",
        )
    if space.ingress and not facts.workers:
        yield Finding("warning", "ingress", f"{space.ingress:,} entries wait there, and no worker is running")


def _is_mode(durability: str) -> bool:
    try:
        parse_durability(durability)
    except UsageError:
        return False
    return True


def _workers(facts: Facts) -> Iterator[Finding]:
    if not facts.workers:
        yield Finding("warning", "workers", "none is running", "start one: stepwell run FILE")
        return
    yield Finding("ok", "workers", f"shards alive: {len(facts.workers)}")
    versions = Counter(worker.version or UNKNOWN for worker in facts.workers)
    if set(versions) - {facts.version}:
        told = ", ".join(f"{version} ({count})" for version, count in sorted(versions.items()))
        yield Finding(
            "warning",
            "workers",
            f"they are of versions {told}, this is {facts.version}: what a newer one wrote is left alone by older ones",
            "finish the upgrade",
        )
    yield from _formats(facts)


def _formats(facts: Facts) -> Iterator[Finding]:
    """Where versions differ in what they read, those that read less stand by, and leave alone what they can't read."""
    formats = Counter(worker.format for worker in facts.workers if worker.format is not None)
    if len(formats) > 1:
        best = max(formats)
        older = sum(formats.values()) - formats[best]
        yield Finding(
            "warning",
            "formats",
            f"{older} shards stand by, as {formats[best]} others read a newer format ({best})",
            "upgrade the workers of the older version",
        )
    left = sum(worker.left_alone for worker in facts.workers)
    if left:
        yield Finding(
            "warning",
            "formats",
            f"{left:,} rows or entries of a newer format are left alone: who owns their partitions can't read them",
            "start workers of the version that wrote them",
        )
