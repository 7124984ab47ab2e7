"""What a shard's own threads tell about the store and about themselves, as metrics.

Layers forbid that metrics know the actors, so these are plain methods: the shard calls them where it observes.
Each may be called from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stepwell.metrics import instruments as i
from stepwell.metrics.sheet import Level, Sheet
from stepwell.store.census import Lying
from stepwell.store.replies import Broken, Committed, Conflict, Fenced, Refused
from stepwell.store.requests import Commit, Restore

__all__ = ["Now", "ShardMetrics"]

_REPLIES: dict[type, str] = {Fenced: "fenced", Conflict: "conflict", Refused: "refused", Broken: "broken"}
_ROWS = (Commit, Restore)
COUNTS_SECONDS_MAX: Final = 15.0
"""What was counted so long ago is shown no more: by then others may own those partitions, and count them."""


@dataclass(frozen=True, slots=True)
class Now:
    """What a shard does at a moment: bodies that run by place, those set apart and those that wait for that, threads
    given up on, executions in memory, partitions held, seconds since what lies in Redis was counted, actors with mail,
    and messages that wait by whose they are."""

    bodies: Mapping[str, int]
    set_apart: int
    waits_apart: int
    abandoned_threads: int
    executions: int
    leases: int
    counted_ago: float
    actors_ready: int
    mail: Mapping[str, int]


class ShardMetrics:
    """What the mirror, the sweep, the dispatcher and the supervisor of one shard see, as counts and levels."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._batch = sheet.shared_spread(i.COMMIT_BATCH_SIZE)
        self._seconds = sheet.shared_spread(i.COMMIT_SECONDS_SPREAD)
        self._ok = sheet.shared_count(i.COMMITS, "ok")
        self._dup = sheet.shared_count(i.COMMITS, "dup")
        self._others = {reply: sheet.shared_count(i.COMMITS, label) for reply, label in _REPLIES.items()}
        self._repeats = sheet.shared_count(i.DUPLICATES_SUPPRESSED, "commit")
        self._not_safe = sheet.shared_count(i.NOT_SAFE)
        self._healed = sheet.shared_count(i.HEALED_EXECUTIONS)
        self._tails_lost = sheet.shared_count(i.TAILS_LOST)
        self._diverged = sheet.shared_count(i.MIRROR_DIVERGENCE)
        self._rows_missing = sheet.shared_count(i.ROWS_MISSING)
        self._fenced = sheet.shared_count(i.FENCED_COMMITS)
        self._undelivered = sheet.shared_count(i.UNDELIVERED)
        self._recovery = sheet.shared_spread(i.RECOVERY_SECONDS_SPREAD)
        self._guarantee: Level | None = None
        self._flows: set[str] = set()  # that backed off at the last count
        self._counts: set[Level] = set()
        self._starts: set[str] = set()  # flows whose starts waited at the last count
        self._now: Callable[[], Now] | None = None

    def limits(self, places: Mapping[str, int], running: int, partitions: int) -> None:
        """So many bodies may run at once by place, and so many executions; the namespace has so many partitions."""
        for place, most in places.items():
            self._sheet.level(i.STEPS_LIMIT, place).set(most)
        self._sheet.level(i.EXECUTIONS_RUNNING_LIMIT).set(running)
        self._sheet.level(i.PARTITIONS).set(partitions)

    def watch(self, now: Callable[[], Now]) -> None:
        """Ask this at each refresh."""
        self._now = now

    def refresh(self) -> None:
        """Set what is only known when it is asked for."""
        if self._now is None:
            return
        now, level = self._now(), self._sheet.level
        for place, running in now.bodies.items():
            level(i.STEPS_RUNNING, place).set(running)
        for actor, waiting in now.mail.items():
            level(i.MAILBOX_MESSAGES, actor).set(waiting)
        level(i.QUARANTINED_STEPS).set(now.set_apart)
        level(i.QUARANTINE_QUEUE).set(now.waits_apart)
        level(i.ABANDONED_THREADS).set(now.abandoned_threads)
        level(i.EXECUTIONS_IN_MEMORY).set(now.executions)
        level(i.LEASES_HELD).set(now.leases)
        level(i.ACTORS_READY).set(now.actors_ready)
        level(i.COUNTS_AGE).set(now.counted_ago)
        if now.counted_ago > COUNTS_SECONDS_MAX:
            for each in list(self._counts):
                each.clear()

    # The store.

    def batch_written(self, requests: Sequence[object], replies: Sequence[object], seconds: float) -> None:
        """A pipeline was answered, `seconds` after it was sent; only writes of rows are commits."""
        self._batch.observe(len(replies))
        self._seconds.observe(seconds)
        ok = dup = 0
        for request, reply in zip(requests, replies, strict=True):
            if not isinstance(request, _ROWS):
                continue
            if type(reply) is Committed:
                if reply.dup:
                    dup += 1
                else:
                    ok += 1
            elif (other := self._others.get(type(reply))) is not None:
                other.inc()
                if type(reply) is Fenced:
                    self._fenced.inc()
        if ok:
            self._ok.inc(ok)
        if dup:
            self._dup.inc(dup)
            self._repeats.inc(dup)

    def store_trouble(self, kind: str) -> None:
        """A part of the shard could not use Redis; `kind` is one of `stepwell.store.troubles.KINDS`."""
        self._sheet.shared_count(i.REDIS_ERRORS, kind).inc()

    def spans_lost(self, reason: str, spans: int) -> None:
        """Spans were made and not exported, for a reason that the instrument has."""
        self._sheet.shared_count(i.SPANS_LOST, reason).inc(spans)

    def not_safe(self) -> None:
        """A batch was executed, and was not as safe in time as the durability mode wants."""
        self._not_safe.inc()

    def healed(self) -> None:
        """A row that Redis had lost was restored from memory."""
        self._healed.inc()

    def tail_lost(self) -> None:
        """Redis has lost acknowledged writes of a partition."""
        self._tails_lost.inc()

    def diverged(self) -> None:
        """A row was changed by somebody else."""
        self._diverged.inc()

    def row_missing(self) -> None:
        """An execution was listed and has no row."""
        self._rows_missing.inc()

    def gained(self, cause: str) -> None:
        """A partition has become ours; `cause`: why something may have been cut short there, '' where that can't be."""
        if cause:
            self._sheet.shared_count(i.RECOVERIES, cause).inc()

    def recovered(self, seconds: float) -> None:
        """All that may have been cut short in such a partition is seen to."""
        self._recovery.observe(seconds)

    def repeated(self, kind: str) -> None:
        """A repeat had no second effect."""
        self._sheet.shared_count(i.DUPLICATES_SUPPRESSED, kind).inc()

    def swept(self, entries: int, executions: int) -> None:
        """A sweep found inbox entries and due executions that nobody held."""
        self._sheet.shared_count(i.SWEEP_FOUND, "entries").inc(entries)
        self._sheet.shared_count(i.SWEEP_FOUND, "executions").inc(executions)

    # What lies in the shard's partitions, as the reader counts it.

    def _level(self, instrument: i.Instrument, *values: str) -> Level:
        level = self._sheet.level(instrument, *values)
        self._counts.add(level)
        return level

    def counted(self, sizes: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        """So many executions of the shard's partitions have not ended, by status, and what they wait for."""
        for status, size in sizes.items():
            self._level(i.EXECUTIONS_NOW, status).set(size)
        for kind, size in waiting.items():
            self._level(i.EXECUTIONS_WAITING, kind).set(size)

    def backing_off(self, by_flow: Mapping[str, tuple[int, int]]) -> None:
        """By flow: how many executions back off, and when the first is due (ms)."""
        sizes: dict[Level, int] = {}
        dues: dict[Level, float] = {}
        for flow in self._flows.union(by_flow):  # some may share a series
            size, due = by_flow.get(flow, (0, 0))
            level = self._level(i.EXECUTIONS_BACKING_OFF, flow)
            sizes[level] = sizes.get(level, 0) + size
            level = self._level(i.RETRY_NEXT_DUE, flow)
            dues[level] = min(dues.get(level, math.inf), due / 1000 if size else math.inf)
        for level, size in sizes.items():
            level.set(size)
        for level, first in dues.items():
            level.set(first) if first < math.inf else level.clear()
        self._flows = set(by_flow)

    def lying(self, found: Lying, oldest_age: float) -> None:
        """What waits there to be applied, or for a person."""
        self._level(i.INBOX_LENGTH).set(found.entries)
        self._level(i.INBOX_LAG).set(oldest_age)
        self._level(i.INGRESS_LENGTH).set(found.ingress)
        self._level(i.DEAD_LETTERS_KEPT).set(found.letters)
        self._level(i.SUSPECTS).set(found.suspects)

    def starts_wait(self, ages: Mapping[str, float]) -> None:
        """By flow: how many seconds ago the start came that is let in next, of those that wait for room, 0 if none."""
        oldest: dict[Level, float] = {}
        for flow in self._starts.union(ages):  # some may share a series
            level = self._level(i.QUEUED_OLDEST, flow)
            oldest[level] = max(oldest.get(level, 0), ages.get(flow, 0))
        for level, age in oldest.items():
            level.set(age)
        self._starts = set(ages)

    # The rest.

    def guarantee_seen(self, labels: Mapping[str, str]) -> None:
        """Another guarantee is in force than before."""
        if self._guarantee is not None:
            self._guarantee.clear()
        self._guarantee = self._sheet.level(i.GUARANTEE, *(labels[each.name] for each in i.GUARANTEE.labels))
        self._guarantee.set(1)

    def taken_in(self, kind: str, count: int) -> None:
        """Entries of the ingress had their effect."""
        self._sheet.shared_count(i.INGRESS, kind).inc(count)

    def left_alone(self, kind: str) -> None:
        """Something of a newer format was found: a row, an entry of an inbox or of the ingress."""
        self._sheet.shared_count(i.LEFT_ALONE, kind).inc()

    def dead_lettered(self, kind: str) -> None:
        """A command could not be applied; `kind` is the short reason."""
        self._sheet.shared_count(i.DEAD_LETTERED, kind).inc()

    def suspect_opened(self, kind: str) -> None:
        """An execution or an inbox entry is opened though shards died on it."""
        self._sheet.shared_count(i.SUSPECTS_OPENED, kind).inc()

    def step_overran(self, flow: str, step: str) -> None:
        """A body went on beyond its timeout, and ended by itself."""
        self._sheet.shared_count(i.STEP_OVERRUNS, flow, step).inc()

    def undelivered(self) -> None:
        """A message reached an actor that had stopped."""
        self._undelivered.inc()

    def actor_failed(self, parked: bool) -> None:
        """An execution's actor failed; it is reloaded from its row, or parked."""
        self._sheet.shared_count(i.ACTOR_RESTARTS, "execution", "parked" if parked else "reloaded").inc()
