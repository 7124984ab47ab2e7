"""The one place that names metrics: what each means, its labels and its buckets.

Labels are closed sets. Flow and step names come from code; should a stranger's row bring more, the subscriber
stops at a limit. Reasons and kinds that are not listed here are counted as `other`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stepwell.core.status import (
    CANCELLED,
    COMPLETED,
    ERROR,
    PARK_CRASHED,
    PARK_DIVERGED,
    PARK_KILLS_SHARD,
    PARK_NOT_DEPLOYED,
    PARK_UNREADABLE,
)
from stepwell.metrics.plain import PlainCounter, PlainHistogram

__all__ = ["Metrics", "one_of"]

OTHER = "other"
GIVE_UP_REASONS = frozenset(
    {"exhausted", "fatal", "payload", "give_up_on", "not in retry_on", "arguments", "interrupted", "cancel", "gather"}
)
BACKOFF_ENDS = frozenset({"timer", "manual", "recovery", "signal", "cancel", "gather", "parked", "unloaded"})
PARK_REASONS = frozenset({PARK_DIVERGED, PARK_NOT_DEPLOYED, PARK_UNREADABLE, PARK_CRASHED, PARK_KILLS_SHARD})
ENDS = frozenset({COMPLETED, ERROR, CANCELLED})
COMMANDS = frozenset({"signal", "cancel", "retry"})
REPLIES = frozenset({"ok", "dup", "fenced", "conflict", "refused", "broken"})
DEAD_LETTER_KINDS = frozenset(
    {"malformed", "no such execution", "not applicable", "kills its shard", "input", "id taken"}
)
GUARANTEE_LABELS = ("server", "topology", "durability", "aof", "eviction", "replicas", "kept")
INGRESS_KINDS = frozenset({"start", "signal", "cancel", "retry"})

BACKOFF_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
LATENESS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STEP_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def one_of(value: str, known: frozenset[str]) -> str:
    """The value itself if it belongs to the closed set, else `other`."""
    return value if value in known else OTHER


class Metrics:
    """Every metric of a shard, created on the given registry (one `Metrics` a registry).

    Those that only the events count are plain: events are published by one thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._steps()
        self._retries()
        self._executions()
        self._store()

    def _steps(self) -> None:
        self.attempts = self._tally(
            "attempts", "Attempts of steps that ended, by outcome: completed or failed.", "flow", "step", "outcome"
        )
        self.step_crashes = self._tally(
            "step_crashes", "Failed attempts whose processes died under them.", "flow", "step"
        )
        self.step_duration = self._spread(
            "step_duration_seconds", "How long the bodies of completed attempts ran.", STEP_SECONDS, "flow", "step"
        )
        self.terminal_failures = self._tally(
            "terminal_failures", "Steps that failed for good, by reason.", "flow", "step", "reason"
        )
        self.interruptions = self._tally(
            "interruptions",
            "Attempts that a crash may have cut short; they run again with their number.",
            "flow",
            "step",
        )
        self.results_dropped = self._tally(
            "results_dropped", "Results of attempts that were not running any more; nothing was recorded."
        )

    def _retries(self) -> None:
        self.retries = self._tally("retries", "Attempts after the first whose bodies started.", "flow", "step")
        self.backoff = self._spread(
            "backoff_seconds", "The delay before the next attempt, as it was decided.", BACKOFF_SECONDS, "flow", "step"
        )
        self.retry_lateness = self._spread(
            "retry_lateness_seconds", "How long after its due time a retry's body started.", LATENESS_SECONDS
        )
        self.backing_off = self._gauge("executions_backing_off", "Steps in memory that back off now.")
        self.backoffs_ended = self._tally("backoffs_ended", "Backoffs that ended, by what ended them.", "reason")

    def _executions(self) -> None:
        self.queue_wait = self._spread(
            "queue_wait_seconds", "From the creation of an execution to its begin.", WAIT_SECONDS, "flow"
        )
        self.executions_ended = self._tally(
            "executions_ended", "Executions that ended, by terminal status.", "flow", "status"
        )
        self.parked = self._tally("parked", "Executions that need a person or a deploy, by reason.", "flow", "reason")
        self.commands = self._tally(
            "commands", "Commands that were answered, by outcome: applied or refused.", "command", "outcome"
        )
        self.executions = Gauge(
            "stepwell_executions",
            "Executions of a shard's partitions that have not ended, by status; in memory or not, counted every 5 s.",
            ["status"],
            registry=self.registry,
        )
        self.executions_in_memory = self._gauge("executions_in_memory", "Executions that have an actor now.")
        self.actor_failures = self._counter(
            "actor_failures", "Executions whose actor failed, by what followed: reloaded or parked.", "outcome"
        )
        self.undelivered = self._counter("undelivered", "Messages to actors that had stopped.")

    def _store(self) -> None:
        self.commits = self._counter("commits", "Writes of rows, by Redis' reply.", "reply")
        self.commit_batch = self._histogram("commit_batch_size", "Requests in one pipeline to Redis.", BATCH_SIZES)
        self.commit_seconds = self._histogram(
            "commit_seconds", "From sending a pipeline to its last reply.", COMMIT_SECONDS
        )
        self.store_troubles = self._counter(
            "store_troubles", "Times that Redis could not be reached or refused for a while."
        )
        self.not_safe = self._counter(
            "not_safe", "Batches that were executed, but not as safe in time as the durability mode wants; sent again."
        )
        self.healed = self._counter("healed", "Rows that Redis had lost and that were restored from memory.")
        self.tails_lost = self._counter(
            "tails_lost",
            "Partitions of which Redis had lost acknowledged writes; their rows were compared with memory.",
        )
        self.fenced = self._counter("fenced", "Writes that met another owner's lease; nothing was written.")
        self.divergence = self._counter("divergence", "Rows that somebody else had changed; read again.")
        self.rows_missing = self._counter(
            "rows_missing", "Executions that were listed and had no row; they were taken off the lists."
        )
        self.sweep_found = self._counter(
            "sweep_found", "Inbox entries and due executions that nobody held: a fault, or a bug.", "kind"
        )
        self.dead_letters = self._counter("dead_letters", "Entries that could not be applied, by reason.", "reason")
        self.left_alone = self._counter(
            "left_alone", "Rows and entries of a newer format, left where they are for a newer worker.", "kind"
        )
        self.guarantee = Gauge(
            "stepwell_guarantee_info",
            "Which guarantee is in force; `kept` is `no` where a promise can't be kept.",
            GUARANTEE_LABELS,
            registry=self.registry,
        )
        self.ingress = self._counter("ingress", "Entries of the ingress that had their effect, by type.", "type")
        self.suspects = self._counter(
            "suspects",
            "Executions and inbox entries opened though shards had died on them, and steps set apart.",
            "kind",
        )

    def _tally(self, name: str, meaning: str, *labels: str) -> PlainCounter:
        return PlainCounter(f"stepwell_{name}", meaning, labels, self.registry)

    def _spread(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> PlainHistogram:
        return PlainHistogram(f"stepwell_{name}", meaning, labels, buckets, self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"stepwell_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"stepwell_{name}", meaning, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"stepwell_{name}", meaning, labels, buckets=buckets, registry=self.registry)
