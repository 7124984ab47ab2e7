"""What a shard's own threads tell about the store and about themselves, as metrics.

Layers forbid that metrics know the actors, so these are plain methods: the shard calls them where it observes.
Each may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepwell.metrics import instruments as i
from stepwell.metrics.sheet import Level, Sheet
from stepwell.store.replies import Broken, Committed, Conflict, Fenced, Refused

__all__ = ["ShardGauges"]

_REPLIES: dict[type, str] = {Fenced: "fenced", Conflict: "conflict", Refused: "refused", Broken: "broken"}


class ShardGauges:
    """Counts what the mirror, the sweep, the dispatcher and the supervisor of one shard see."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._batch = sheet.shared_spread(i.COMMIT_BATCH_SIZE)
        self._seconds = sheet.shared_spread(i.COMMIT_SECONDS_SPREAD)
        self._ok = sheet.shared_count(i.COMMITS, "ok")
        self._dup = sheet.shared_count(i.COMMITS, "dup")
        self._others = {reply: sheet.shared_count(i.COMMITS, label) for reply, label in _REPLIES.items()}
        self._not_safe = sheet.shared_count(i.NOT_SAFE)
        self._healed = sheet.shared_count(i.HEALED_EXECUTIONS)
        self._tails_lost = sheet.shared_count(i.TAILS_LOST)
        self._diverged = sheet.shared_count(i.MIRROR_DIVERGENCE)
        self._rows_missing = sheet.shared_count(i.ROWS_MISSING)
        self._fenced = sheet.shared_count(i.FENCED_COMMITS)
        self._undelivered = sheet.shared_count(i.UNDELIVERED)
        self._guarantee: Level | None = None
        self._executions_in_memory: Callable[[], int] = lambda: 0

    def watch_memory(self, executions_in_memory: Callable[[], int]) -> None:
        """Ask this at each refresh how many executions have an actor."""
        self._executions_in_memory = executions_in_memory

    def refresh(self) -> None:
        """Set what is only known when it is asked for."""
        self._sheet.level(i.EXECUTIONS_IN_MEMORY).set(self._executions_in_memory())

    def batch_written(self, replies: Sequence[object], seconds: float) -> None:
        """A pipeline was answered, `seconds` after it was sent; replies to reads count for the size only."""
        self._batch.observe(len(replies))
        self._seconds.observe(seconds)
        ok = 0
        for reply in replies:
            if type(reply) is Committed:
                if reply.dup:
                    self._dup.inc()
                else:
                    ok += 1
            elif (other := self._others.get(type(reply))) is not None:
                other.inc()
        if ok:
            self._ok.inc(ok)

    def store_trouble(self) -> None:
        """Redis could not be reached, or refused for now."""
        self._sheet.shared_count(i.REDIS_ERRORS, "unreachable").inc()

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

    def fenced(self) -> None:
        """A write met another owner's lease."""
        self._fenced.inc()

    def swept(self, entries: int, executions: int) -> None:
        """A sweep found inbox entries and due executions that nobody held."""
        self._sheet.shared_count(i.SWEEP_FOUND, "entries").inc(entries)
        self._sheet.shared_count(i.SWEEP_FOUND, "executions").inc(executions)

    def counted(self, sizes: Mapping[str, int]) -> None:
        """So many executions of the shard's partitions have not ended, by status."""
        for status, size in sizes.items():
            self._sheet.level(i.EXECUTIONS_NOW, status).set(size)

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

    def undelivered(self) -> None:
        """A message reached an actor that had stopped."""
        self._undelivered.inc()

    def actor_failed(self, parked: bool) -> None:
        """An execution's actor failed; it is reloaded from its row, or parked."""
        self._sheet.shared_count(i.ACTOR_RESTARTS, "execution", "parked" if parked else "reloaded").inc()
