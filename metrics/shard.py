"""What a shard's own threads tell about the store and about themselves, as metrics.

Layers forbid that metrics know the actors, so these are plain methods: the shard calls them where it observes.
Each may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepwell.metrics.names import DEAD_LETTER_KINDS, INGRESS_KINDS, Metrics, one_of
from stepwell.store.replies import Broken, Committed, Conflict, Fenced, Refused

__all__ = ["ShardGauges"]

_REPLIES: dict[type, str] = {Fenced: "fenced", Conflict: "conflict", Refused: "refused", Broken: "broken"}


class ShardGauges:
    """Counts what the mirror, the sweep, the dispatcher and the supervisor of one shard see."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._ok = metrics.commits.labels("ok")
        self._dup = metrics.commits.labels("dup")
        self._others = {reply: metrics.commits.labels(label) for reply, label in _REPLIES.items()}

    def watch_memory(self, executions_in_memory: Callable[[], int]) -> None:
        """Ask this at each scrape how many executions have an actor."""
        self._metrics.executions_in_memory.set_function(executions_in_memory)

    def batch_written(self, replies: Sequence[object], seconds: float) -> None:
        """A pipeline was answered, `seconds` after it was sent; replies to reads count for the size only."""
        self._metrics.commit_batch.observe(len(replies))
        self._metrics.commit_seconds.observe(seconds)
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
        self._metrics.store_troubles.inc()

    def not_safe(self) -> None:
        """A batch was executed, and was not as safe in time as the durability mode wants."""
        self._metrics.not_safe.inc()

    def healed(self) -> None:
        """A row that Redis had lost was restored from memory."""
        self._metrics.healed.inc()

    def tail_lost(self) -> None:
        """Redis has lost acknowledged writes of a partition."""
        self._metrics.tails_lost.inc()

    def diverged(self) -> None:
        """A row was changed by somebody else."""
        self._metrics.divergence.inc()

    def row_missing(self) -> None:
        """An execution was listed and has no row."""
        self._metrics.rows_missing.inc()

    def fenced(self) -> None:
        """A write met another owner's lease."""
        self._metrics.fenced.inc()

    def swept(self, entries: int, executions: int) -> None:
        """A sweep found inbox entries and due executions that nobody held."""
        self._metrics.sweep_found.labels("entries").inc(entries)
        self._metrics.sweep_found.labels("executions").inc(executions)

    def counted(self, sizes: Mapping[str, int]) -> None:
        """So many executions of the shard's partitions have not ended, by status."""
        for status, size in sizes.items():
            self._metrics.executions.labels(status).set(size)

    def guarantee_seen(self, labels: Mapping[str, str]) -> None:
        """Another guarantee is in force than before."""
        self._metrics.guarantee.clear()
        self._metrics.guarantee.labels(**labels).set(1)

    def taken_in(self, kind: str, count: int) -> None:
        """Entries of the ingress had their effect."""
        self._metrics.ingress.labels(one_of(kind, INGRESS_KINDS)).inc(count)

    def left_alone(self, kind: str) -> None:
        """Something of a newer format was found: a row, an entry of an inbox or of the ingress."""
        self._metrics.left_alone.labels(kind).inc()

    def dead_lettered(self, kind: str) -> None:
        """A command could not be applied; `kind` is the short reason."""
        self._metrics.dead_letters.labels(one_of(kind, DEAD_LETTER_KINDS)).inc()

    def suspect_opened(self, kind: str) -> None:
        """An execution or an inbox entry is opened though shards died on it."""
        self._metrics.suspects.labels(kind).inc()

    def undelivered(self) -> None:
        """A message reached an actor that had stopped."""
        self._metrics.undelivered.inc()

    def actor_failed(self, parked: bool) -> None:
        """An execution's actor failed; it is reloaded from its row, or parked."""
        self._metrics.actor_failures.labels("parked" if parked else "reloaded").inc()
