"""A namespace at a glance: what `stepwell top` shows, put together from one reading of Redis and the one before it.

Times are milliseconds since the epoch on the namespace's clock. Payloads are in none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from stepwell.core.fullness import Memory
from stepwell.core.ownership import LEAVING, Member
from stepwell.core.vitals import RunningStep, StepTimes, Vitals

__all__ = [
    "ERROR_CHARS_MAX",
    "BackingOff",
    "Backoffs",
    "Counted",
    "FlowBackoffs",
    "Inbox",
    "LongStep",
    "Overview",
    "Partitions",
    "Rate",
    "Seen",
    "ShardState",
    "SlowStep",
    "overview_of",
]

FRESH_MS: Final = 10_000
"""What a shard has said longer ago than this is not about now."""
GONE_MS: Final = 600_000
"""A shard that has been silent for longer is not shown any more."""
ERROR_CHARS_MAX: Final = 200
"""Of an error's message so much is shown where many are told."""

State = Literal["active", "leaving", "silent"]


class Counted(msgspec.Struct, frozen=True):
    """Executions of one status. `per_second`: how fast that changes; None where there was no reading before."""

    count: int
    per_second: float | None = None


class Rate(msgspec.Struct, frozen=True):
    """What all living shards did a second, in the last few seconds."""

    steps: float = 0.0
    failures: float = 0.0
    retries: float = 0.0


class BackingOff(msgspec.Struct, frozen=True):
    """A step that waits for its next attempt, number `attempt` of `max_attempts` (None: not known). The execution is
    the one that is named; `path`, and what comes after, is None where its row does not say it (any more)."""

    execution: str
    flow: str
    due_at: int
    path: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    error_type: str | None = None
    error: str | None = None


class FlowBackoffs(msgspec.Struct, frozen=True):
    """How many executions of a flow back off, and when the first of them is due."""

    flow: str
    executions: int
    next_due_at: int


class Backoffs(msgspec.Struct, frozen=True):
    """Who backs off: how many executions, those that are due next, and how many of each flow, the most first."""

    executions: int = 0
    next: tuple[BackingOff, ...] = ()
    by_flow: tuple[FlowBackoffs, ...] = ()


class LongStep(msgspec.Struct, frozen=True):
    """An attempt that runs `since` that moment, and the shard that runs it."""

    execution: str
    flow: str
    path: str
    attempt: int
    since: int
    shard: str


class SlowStep(msgspec.Struct, frozen=True):
    """How long the attempts of one step ran that ended in the last minute. `p95_ms`: 95 % of them took at most that
    long, as far as the metric's buckets tell; None: longer than the last bucket."""

    flow: str
    step: str
    completed: int
    mean_ms: float
    p95_ms: float | None


class ShardState(msgspec.Struct, frozen=True):
    """One shard. What it does not say is None: it is of an older version, or has said nothing yet or lately.

    `silent_ms`: since its last sign of life. `life`: the how manieth process of its worker it is; `started_at`: when
    that began its work. `queued`: attempts that wait for their turn; `waits_apart`: those of them that may have killed
    a shard, and wait for a process of their own. `limit`: bodies that it runs at most.
    `inbox_lag`: age in seconds of its oldest inbox entry that is neither applied nor waits for room.
    """

    name: str
    state: State
    silent_ms: int
    partitions: int
    host: str = ""
    pid: int | None = None
    version: str | None = None
    started_at: int | None = None
    life: int | None = None
    executions: int | None = None
    running: int | None = None
    queued: int | None = None
    waits_apart: int | None = None
    limit: int | None = None
    steps_per_second: float | None = None
    inbox_lag: float | None = None


class Partitions(msgspec.Struct, frozen=True):
    """How many there are, and of how many somebody holds the lease."""

    total: int
    held: int


class Inbox(msgspec.Struct, frozen=True):
    """Commands and doorbells that are not applied yet. `oldest_at`: when the oldest came that was looked at, which is
    that of the longest inboxes; None where nothing waits. `ingress`: entries that wait there."""

    entries: int = 0
    oldest_at: int | None = None
    partition: int | None = None
    ingress: int = 0


class Overview(msgspec.Struct, frozen=True):
    """The namespace at the moment `at`.

    Attributes:
        namespace: its name.
        at: when it was read, on the server's clock.
        executions: by status.
        rate: what the shards do a second; None where none of them says it.
        backoffs: who waits for a next attempt.
        longest: the running steps that have run longest, the longest first.
        slowest: the steps with the longest mean, the longest first.
        shards: those that need a look first.
        partitions: how many are held.
        inbox: what is not applied yet.
        dead_letters: how many there are.
        durability: when a write counts as acknowledged.
        guarantee: what is in force, as the workers have found it; empty where none has said so.
        unread: why some of the keys could not be read; empty where all could.
        memory: how full the server is; None where it has no limit, or does not say it.
    """

    namespace: str
    at: int
    executions: dict[str, Counted]
    rate: Rate | None
    backoffs: Backoffs
    longest: tuple[LongStep, ...]
    slowest: tuple[SlowStep, ...]
    shards: tuple[ShardState, ...]
    partitions: Partitions
    inbox: Inbox
    dead_letters: int
    durability: str
    guarantee: dict[str, str]
    unread: str = ""
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading: what the keys said. `leases`: the owner of each partition that has one; `versions` those that
    workers name; `beats` when each worker gave its last sign of life."""

    namespace: str
    at: int
    partitions: int
    counts: Mapping[str, int]
    durability: str
    leases: Mapping[int, str] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    beats: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    vitals: Mapping[str, Vitals] = field(default_factory=dict)
    inbox: Inbox = field(default_factory=Inbox)
    dead_letters: int = 0
    by_flow: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    next: Sequence[BackingOff] = ()
    unread: str = ""
    memory: Memory | None = None


def overview_of(seen: Seen, before: Overview | None, most: int) -> Overview:
    """What a reading says, with at most so many entries of each kind that there may be many of."""
    shards = _shards(seen)
    living = {each.name for each in shards if each.state != "silent"}
    fresh = {name: vitals for name, vitals in seen.vitals.items() if name in living and seen.at - vitals.at <= FRESH_MS}
    flows = [FlowBackoffs(flow, executions, due) for flow, (executions, due) in seen.by_flow.items()]
    flows.sort(key=lambda each: (-each.executions, each.flow))
    return Overview(
        namespace=seen.namespace,
        at=seen.at,
        executions=_counted(seen, before),
        rate=_rate(fresh.values()) if fresh else None,
        backoffs=Backoffs(sum(each.executions for each in flows), tuple(seen.next[:most]), tuple(flows[:most])),
        longest=_longest(fresh, most),
        slowest=_slowest([times for vitals in fresh.values() for times in vitals.work.slowest], most),
        shards=tuple(shards),
        partitions=Partitions(seen.partitions, len(seen.leases)),
        inbox=seen.inbox,
        dead_letters=seen.dead_letters,
        durability=seen.durability,
        guarantee=_weakest([dict(vitals.guarantee) for vitals in fresh.values()]),
        unread=seen.unread,
        memory=seen.memory,
    )


def _counted(seen: Seen, before: Overview | None) -> dict[str, Counted]:
    passed = 0 if before is None or before.namespace != seen.namespace else seen.at - before.at
    if before is None or passed <= 0:
        return {status: Counted(count) for status, count in seen.counts.items()}
    old = before.executions
    return {
        status: Counted(count, round((count - old[status].count) * 1000 / passed, 3) if status in old else None)
        for status, count in seen.counts.items()
    }


def _rate(told: Iterable[Vitals]) -> Rate:
    rates = [vitals.work.rates for vitals in told]
    return Rate(
        round(sum(each.steps for each in rates), 3),
        round(sum(each.failures for each in rates), 3),
        round(sum(each.retries for each in rates), 3),
    )


def _longest(fresh: Mapping[str, Vitals], most: int) -> tuple[LongStep, ...]:
    found: list[tuple[RunningStep, str]] = [
        (running, name) for name, vitals in fresh.items() for running in vitals.longest
    ]
    found.sort(key=lambda each: each[0].since)
    return tuple(
        LongStep(each.execution, each.flow, each.path, each.attempt, each.since, name) for each, name in found[:most]
    )


def _slowest(told: Sequence[StepTimes], most: int) -> tuple[SlowStep, ...]:
    """Of several shards as one. A step that is not among the slowest of a shard is not told by that one."""
    together: dict[tuple[str, str], list[StepTimes]] = {}
    for times in told:
        together.setdefault((times.flow, times.step), []).append(times)
    found = []
    for (flow, step), of in together.items():
        completed = sum(each.completed for each in of)
        if completed:
            mean = sum(each.seconds for each in of) * 1000 / completed
            found.append(SlowStep(flow, step, completed, round(mean, 3), _p95_ms(of, completed)))
    found.sort(key=lambda each: each.mean_ms, reverse=True)
    return tuple(found[:most])


def _p95_ms(told: Sequence[StepTimes], completed: int) -> float | None:
    within: dict[float, int] = {}
    for times in told:
        for bound, count in times.spread:
            if bound is not None:
                within[bound] = within.get(bound, 0) + count
    reached = 0
    for bound in sorted(within):
        reached += within[bound]
        if reached >= 0.95 * completed:
            return round(bound * 1000, 3)
    return None


def _weakest(told: Sequence[dict[str, str]]) -> dict[str, str]:
    """The first one, but one by which a promise can't be kept before any other."""
    said = [each for each in told if each]
    return next((each for each in said if each.get("kept") == "no"), said[0] if said else {})


def _shards(seen: Seen) -> list[ShardState]:
    held: dict[str, int] = {}
    for owner in seen.leases.values():
        held[owner] = held.get(owner, 0) + 1
    shards = [_shard(name, seen, held.get(name, 0)) for name in {*seen.members, *seen.beats, *held}]
    shown = [each for each in shards if each.silent_ms <= GONE_MS or each.partitions]
    order: dict[State, int] = {"silent": 0, "leaving": 1, "active": 2}
    return sorted(shown, key=lambda each: (order[each.state], each.name))


def _shard(name: str, seen: Seen, partitions: int) -> ShardState:
    member, vitals = seen.members.get(name), seen.vitals.get(name)
    # Vitals are no sign of life: they come from another thread than the one that renews the leases.
    last = max(seen.beats.get(name, 0), 0 if member is None else member.at)
    silent = max(0, seen.at - last)
    state: State = "silent" if silent > FRESH_MS else "active"
    if state == "active" and member is not None and member.state == LEAVING:
        state = "leaving"
    host, pid = _process("" if member is None else member.host)
    told = None if state == "silent" or vitals is None or seen.at - vitals.at > FRESH_MS else vitals
    return ShardState(
        name=name,
        state=state,
        silent_ms=silent,
        partitions=partitions,
        host=host,
        pid=pid,
        version=seen.versions.get(name),
        started_at=None if vitals is None else vitals.started_at,
        life=None if vitals is None else vitals.life,
        executions=None if told is None else told.executions,
        running=None if told is None else told.running,
        queued=None if told is None else told.queued,
        waits_apart=None if told is None else told.waits_apart,
        limit=None if told is None else told.limit,
        steps_per_second=None if told is None else told.work.rates.steps,
        inbox_lag=None if told is None else told.inbox_lag,
    )


def _process(info: str) -> tuple[str, int | None]:
    """Host and pid of `host/namespace,boot,pid,start`."""
    host, _, pid, _ = (info.split(",") + [""] * 3)[:4]
    return host.partition("/")[0], int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 20 else None
