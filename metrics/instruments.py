"""Every metric: its name, what it tells, its labels with all values they can have, its buckets.

Nothing else names one. Labels are closed sets: a value that is not listed here counts as `other`, and of names that
come from code (flows, steps) no more series are made than `PAIRS_MAX`. Never an id, a message or a key is a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from stepwell.core.letters import LETTER_KINDS
from stepwell.core.limits import LANE_SIZE
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
from stepwell.core.status import STATUSES as EXECUTION_STATUSES
from stepwell.metrics.instrument import PREFIX, Instrument, Kind, Label, Together
from stepwell.store.troubles import KINDS as REDIS_TROUBLES

__all__ = ["INSTRUMENTS", "OTHER", "PAIRS_MAX", "PREFIX", "Instrument", "Kind", "Label", "Together", "closed_series"]

OTHER: Final = "other"
PAIRS_MAX: Final = 2_000
"""Of pairs of flow and step, and of flows, that have series of their own in one shard; more count as `other`."""


def _label(name: str, *values: str) -> Label:
    return Label(name, frozenset((*values, OTHER)))


FLOW: Final = Label("flow")
STEP: Final = Label("step")
_PAIR: Final = (FLOW, STEP)

BACKOFF_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
LATENESS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STEP_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
QUEUE_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
LIFE_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400, 604800)
COMMIT_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
RECOVERY_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ATTEMPTS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100)
ATTEMPTS_LEFT: Final = (1, 2, 3, 5, 10, 20, 50, 100)

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# Retries.

STEP_ATTEMPTS: Final = Instrument(
    "step_attempts",
    _C,
    "Attempts of steps that ended: ok, retryable (another follows), terminal (none does), timeout (whether or not "
    "another follows); and those that a crash may have cut short, or the end of a worker did, each time (interrupted: "
    "the attempt runs again with its number).",
    (*_PAIR, _label("outcome", "ok", "retryable", "terminal", "timeout", "interrupted")),
    exemplars=True,
)
STEP_RETRIES_SCHEDULED: Final = Instrument(
    "step_retries_scheduled",
    _C,
    "Failed attempts after which another one was scheduled, by what failed: an error, a timeout, the death of the "
    "step's process (crash), or an error that asked for its own delay (retry_after).",
    (*_PAIR, _label("reason", "error", "timeout", "crash", "retry_after")),
    exemplars=True,
)
STEP_FAILURES: Final = Instrument(
    "step_failures",
    _C,
    "Steps that failed for good: the budget is used up, the error is fatal or not to be retried (fatal), a timeout "
    "that is not to be retried (deadline), arguments or a result that can't be passed on (payload), code that does not "
    "match the record at this step, so that its execution is parked (nondeterminism), cut short too often "
    "(interrupted), or failed while it was wound up by a cancel or a gather.",
    (
        *_PAIR,
        _label("reason", "budget", "fatal", "deadline", "payload", "nondeterminism", "interrupted", "cancel", "gather"),
    ),
    exemplars=True,
)
RETRY_BACKOFF: Final = Instrument(
    "retry_backoff_seconds",
    _H,
    "The delay chosen before the next attempt, as the row and the log have it.",
    _PAIR,
    BACKOFF_SECONDS,
    exemplars=True,
)
RETRY_LATENESS: Final = Instrument(
    "retry_lateness_seconds",
    _H,
    "How long after it was due, or was asked for by hand, a retry's body began; of one that had begun, or may have,"
    " when another owner took it up: how long after that it began anew. Observed when the retry has ended.",
    (),
    LATENESS_SECONDS,
    exemplars=True,
)
RETRY_WAKEUPS: Final = Instrument(
    "retry_wakeups",
    _C,
    "Backoffs that ended with another attempt, by what ended them: its timer, a person's retry (manual), the loading "
    "of an execution that was overdue by then (recovery), or a message that brought one back that was (signal).",
    (_label("source", "timer", "manual", "recovery", "signal"),),
)
BACKOFFS_ABANDONED: Final = Instrument(
    "backoffs_abandoned",
    _C,
    "Backoffs that ended without another attempt, by why: a cancel, or a sibling in a gather that failed.",
    (_label("reason", "cancel", "gather"),),
)
EXECUTIONS_BACKING_OFF: Final = Instrument(
    "executions_backing_off",
    _G,
    "Executions of which a step waits for its next attempt, in memory or not; counted every 5 s.",
    (FLOW,),
)
RETRY_NEXT_DUE: Final = Instrument(
    "retry_next_due_timestamp_seconds",
    _G,
    "When the next of the waiting retries is due, seconds since the epoch; absent where none waits.",
    (FLOW,),
    together=Together.LEAST,
)
STEP_ATTEMPTS_TO_SUCCESS: Final = Instrument(
    "step_attempts_to_success",
    _H,
    "Number of the attempt at which a step completed.",
    _PAIR,
    ATTEMPTS,
)
STEP_ATTEMPTS_LEFT: Final = Instrument(
    "step_attempts_left",
    _H,
    "Attempts that the budget still allowed when a retry was scheduled; 1: the next one is the last.",
    _PAIR,
    ATTEMPTS_LEFT,
)

# Work.

EXECUTIONS_ENDED: Final = Instrument(
    "executions",
    _C,
    "Executions that ended, by terminal status.",
    (FLOW, _label("status", COMPLETED, ERROR, CANCELLED)),
)
EXECUTIONS_NOW: Final = Instrument(
    "executions",
    _G,
    "Executions that have not ended, and those in error, by status, in memory or not; counted every 5 s.",
    (Label("status", frozenset(EXECUTION_STATUSES) - {COMPLETED, CANCELLED}),),
)
EXECUTIONS_PARKED: Final = Instrument(
    "executions_parked",
    _C,
    "Executions that were parked since they need a person or a deploy, by reason.",
    (
        FLOW,
        _label("reason", PARK_DIVERGED, PARK_NOT_DEPLOYED, PARK_UNREADABLE, PARK_CRASHED, PARK_KILLS_SHARD),
    ),
)
EXECUTIONS_WAITING: Final = Instrument(
    "executions_waiting",
    _G,
    "Executions that wait, in memory or not, by what for: a time that is known (timed: a backoff, a sleep, the limit "
    "of a wait), or only what comes from outside (untimed); counted every 5 s.",
    (Label("kind", frozenset({"timed", "untimed"})),),
)
EXECUTION_DURATION: Final = Instrument(
    "execution_duration_seconds",
    _H,
    "From an execution's begin to its end.",
    (FLOW,),
    LIFE_SECONDS,
    exemplars=True,
)
EXECUTION_QUEUE: Final = Instrument(
    "execution_queue_seconds",
    _H,
    "From an execution's creation to its begin.",
    (FLOW,),
    QUEUE_SECONDS,
)
QUEUED_OLDEST: Final = Instrument(
    "executions_queued_oldest_seconds",
    _G,
    "Age of the start that is let in next, of those that wait for room, by flow; 0 where none waits; looked "
    "at every 5 s.",
    (FLOW,),
    together=Together.GREATEST,
)
STEP_DURATION: Final = Instrument(
    "step_duration_seconds",
    _H,
    "How long the bodies of attempts ran that ended: all but those that a shard's death cut short.",
    _PAIR,
    STEP_SECONDS,
    exemplars=True,
)
STEP_QUEUE: Final = Instrument(
    "step_queue_seconds",
    _H,
    "From when an attempt was ready (declared and acknowledged, or due) to when its body began.",
    (FLOW,),
    QUEUE_SECONDS,
    exemplars=True,
)
STEPS_RUNNING: Final = Instrument(
    "steps_running",
    _G,
    "Bodies that run now, by where: on the event loop, on threads, in processes.",
    (Label("place", frozenset({"loop", "thread", "process"})),),
)
STEPS_LIMIT: Final = Instrument(
    "steps_limit",
    _G,
    "How many bodies may run at once, by where.",
    (Label("place", frozenset({"loop", "thread", "process"})),),
)
EXECUTIONS_RUNNING_LIMIT: Final = Instrument(
    "executions_running_limit",
    _G,
    "How many executions may run at once.",
)
EXECUTIONS_IN_MEMORY: Final = Instrument(
    "executions_in_memory",
    _G,
    "Executions that have an actor now.",
    together=Together.APART,
)
COMMANDS: Final = Instrument(
    "commands",
    _C,
    "Commands that were answered, by outcome.",
    (_label("verb", "signal", "cancel", "retry"), _label("outcome", "applied", "refused")),
)
INGRESS: Final = Instrument(
    "ingress",
    _C,
    "Entries of the ingress that had their effect.",
    (_label("verb", "start", "signal", "cancel", "retry"),),
)

# Safety.

COMMITS: Final = Instrument(
    "commits",
    _C,
    "Writes of rows, by Redis' reply.",
    (_label("reply", "ok", "dup", "fenced", "conflict", "refused", "broken"),),
)
COMMIT_SECONDS_SPREAD: Final = Instrument(
    "commit_seconds",
    _H,
    "From sending a pipeline to its last reply, its wait for durability included.",
    (),
    COMMIT_SECONDS,
)
COMMIT_BATCH_SIZE: Final = Instrument(
    "commit_batch_size",
    _H,
    "Requests in one pipeline to Redis.",
    (),
    BATCH_SIZES,
)
NOT_SAFE: Final = Instrument(
    "not_safe",
    _C,
    "Batches that were executed, but not in time as safe as the durability mode wants; they are sent again.",
)
FENCED_COMMITS: Final = Instrument(
    "fenced_commits",
    _C,
    "Writes of rows that met another owner's lease, or none; nothing was written.",
)
DUPLICATES_SUPPRESSED: Final = Instrument(
    "duplicates_suppressed",
    _C,
    "Repeats that had no second effect: a commit whose reply was lost, a command that was applied before, a start of "
    "an execution that exists, the result of an attempt that does not run any more.",
    (_label("kind", "commit", "command", "start", "result"),),
)
RECOVERIES: Final = Instrument(
    "recoveries",
    _C,
    "Partitions that were taken over with what their last owner may have left undone: it died and its black box was "
    "read (boxed), it was found dead on this host (dead), or its lease lapsed (lapsed).",
    (_label("cause", "boxed", "dead", "lapsed"),),
)
RECOVERY_SECONDS_SPREAD: Final = Instrument(
    "recovery_seconds",
    _H,
    "From the grant of such a partition until all that was cut short there was seen to; looked at twice a second.",
    (),
    RECOVERY_SECONDS,
)
SWEEP_FOUND: Final = Instrument(
    "sweep_found",
    _C,
    "Inbox entries and due executions that nobody held: a fault, or a bug.",
    (_label("what", "entries", "executions"),),
)
SUSPECTS: Final = Instrument(
    "suspects",
    _G,
    "Executions and inbox entries that shards have died on, counted every 5 s.",
)
SUSPECTS_OPENED: Final = Instrument(
    "suspects_opened",
    _C,
    "Executions and inbox entries opened though shards had died on them, and steps set apart in a process of their "
    "own.",
    (_label("kind", "execution", "entry", "step"),),
)
QUARANTINED_STEPS: Final = Instrument(
    "quarantined_steps",
    _G,
    "Attempts that run now in processes of their own, since they may have killed a shard.",
)
QUARANTINE_QUEUE: Final = Instrument(
    "quarantined_steps_waiting",
    _G,
    f"Attempts that may have killed a shard and wait for a process of their own, of which a shard has {LANE_SIZE}.",
)
ABANDONED_THREADS: Final = Instrument(
    "abandoned_threads",
    _G,
    "Threads given up on: their steps went on 30 s after their timeout or cancel.",
)
STEP_OVERRUNS: Final = Instrument(
    "step_overruns",
    _C,
    "Bodies that went on beyond their timeout and then ended by themselves, as nothing can stop a thread, or what holds"
    " up the event loop; their outcomes count.",
    _PAIR,
)
STEP_CRASHES: Final = Instrument(
    "step_crashes",
    _C,
    "Failed attempts whose processes died under them.",
    _PAIR,
)
MIRROR_DIVERGENCE: Final = Instrument(
    "mirror_divergence",
    _C,
    "Rows that somebody else had changed; they were read again.",
)
HEALED_EXECUTIONS: Final = Instrument(
    "healed_executions",
    _C,
    "Rows that Redis had lost and that were restored from memory.",
)
TAILS_LOST: Final = Instrument(
    "tails_lost",
    _C,
    "Partitions of which Redis had lost acknowledged writes; their rows were compared with memory.",
)
ROWS_MISSING: Final = Instrument(
    "rows_missing",
    _C,
    "Executions that were listed and had no row; they were taken off the lists.",
)
LEFT_ALONE: Final = Instrument(
    "left_alone",
    _C,
    "What a newer version wrote, left where it is.",
    (_label("kind", "row", "entry", "ingress"),),
)
DEAD_LETTERED: Final = Instrument(
    "dead_letters",
    _C,
    "Commands and starts that could not be applied, by reason.",
    (_label("reason", *LETTER_KINDS),),
)
DEAD_LETTERS_KEPT: Final = Instrument(
    "dead_letters",
    _G,
    "Dead letters that lie there now, those of the ingress too; counted every 5 s.",
)

# The runtime itself.

ACTOR_RESTARTS: Final = Instrument(
    "actor_restarts",
    _C,
    "Actors that failed and were started again, by which; `parked`: too often, so their execution was parked.",
    (_label("actor", "execution"), _label("reason", "reloaded", "parked")),
)
MAILBOX_MESSAGES: Final = Instrument(
    "mailbox_messages",
    _G,
    "Messages that wait: in the dispatcher's mailbox, and in the mirror's for the next pipeline to Redis.",
    (Label("actor", frozenset({"dispatcher", "mirror"})),),
    together=Together.APART,
)
ACTORS_READY: Final = Instrument(
    "actors_ready",
    _G,
    "Actors that have mail and wait for their turn.",
    together=Together.APART,
)
UNDELIVERED: Final = Instrument(
    "undelivered",
    _C,
    "Messages to actors that had stopped.",
)
SPANS_LOST: Final = Instrument(
    "spans_lost",
    _C,
    "Spans that were made by a shard and not exported, by why: too many waited for the exporter (queue_full), it did "
    "not take them (export_failed), or it took too long at the end (shutdown). 0 where no spans are made, or a tracer "
    "provider of your own exports them.",
    (_label("reason", "queue_full", "export_failed", "shutdown"),),
)
INBOX_LENGTH: Final = Instrument(
    "inbox_length",
    _G,
    "Entries that lie in the inboxes of owned partitions, counted every 5 s.",
)
INBOX_LAG: Final = Instrument(
    "inbox_lag_seconds",
    _G,
    "Age of the oldest entry of an owned partition's inbox that is neither applied nor held back until there is room "
    "for it (then it counts from when it is let in); 0 where none is; looked at every 5 s.",
    together=Together.GREATEST,
)
COUNTS_AGE: Final = Instrument(
    "counts_age_seconds",
    _G,
    "How long ago the gauges that are counted every 5 s were counted, by the shard that is furthest behind; those of a "
    "shard are absent once it could not count for 15 s.",
    together=Together.GREATEST,
)
INGRESS_LENGTH: Final = Instrument(
    "ingress_length",
    _G,
    "Entries that lie in the ingress, counted every 5 s by whoever owns partition 0.",
)
LEASES_HELD: Final = Instrument(
    "leases_held",
    _G,
    "Partitions that the shard owns, by its own clock: its leases of them can't have lapsed.",
    together=Together.APART,
)
PARTITIONS: Final = Instrument(
    "partitions",
    _G,
    "Partitions of the namespace, whoever owns them.",
    together=Together.GREATEST,
)
REDIS_ERRORS: Final = Instrument(
    "redis_errors",
    _C,
    "Times that a part of a shard could not use Redis, by how: it could not be reached, the connection broke, it did "
    "not answer in time, it is read-only, full (or can't save), loading, busy with a script, short of replicas, a "
    "cluster's slot is not served now, or it refused a command.",
    (_label("kind", *REDIS_TROUBLES),),
)
GUARANTEE: Final = Instrument(
    "guarantee_info",
    _G,
    "1; which guarantee is in force, looked at every minute; `kept` is `no` where a promise can't be kept.",
    tuple(Label(name) for name in ("server", "topology", "durability", "aof", "eviction", "replicas", "kept")),
    together=Together.GREATEST,
)

# Of the worker's parent.

BUILD: Final = Instrument(
    "build_info",
    _G,
    "1; which version runs, on which Python.",
    (Label("version"), Label("python")),
    together=Together.GREATEST,
)
STARTED: Final = Instrument(
    "worker_started_timestamp_seconds",
    _G,
    "When the worker was started, seconds since the epoch; its counters begin at 0 then.",
    together=Together.LEAST,
)
SHARDS: Final = Instrument(
    "shards",
    _G,
    "Shards of the worker, by state.",
    (Label("state", frozenset({"starting", "running", "restarting", "ending"})),),
)
SHARD_RESTARTS: Final = Instrument(
    "shard_restarts",
    _C,
    "Shards that were started again after they had died, by what ended them.",
    (_label("cause", "killed", "exit", "failed", "hang", "silent", "nonsense", "stuck"),),
)
SHARD_MEMORY: Final = Instrument(
    "shard_resident_memory_bytes",
    _G,
    "Memory of a shard's process, without its step processes; absent where the system has no /proc.",
    (Label("shard"),),
)
SHARD_CPU: Final = Instrument(
    "shard_cpu_seconds",
    _C,
    "CPU time of a shard's processes, one after the other, without their step processes; absent where the system has "
    "no /proc.",
    (Label("shard"),),
)
EXPOSITION_SECONDS: Final = Instrument(
    "exposition_seconds",
    _G,
    "How long it took to make the page of metrics before this one.",
    together=Together.GREATEST,
)
EXPOSITION_BYTES: Final = Instrument(
    "exposition_bytes",
    _G,
    "Size of the page of metrics before this one, as it was sent.",
    together=Together.GREATEST,
)

# All.

INSTRUMENTS: Final = tuple(value for value in dict(globals()).values() if isinstance(value, Instrument))
"""All of them, in the order of this file."""


def closed_series() -> Iterator[tuple[Instrument, tuple[str, ...]]]:
    """Counters and histograms of which all label values are known beforehand, with each combination of these.

    They are shown from the start, with 0: of a series that begins with its first event, `increase()` does not see that.
    """
    for each in INSTRUMENTS:
        values = [sorted(label.values) for label in each.labels if label.values is not None]
        if each.kind is not Kind.GAUGE and len(values) == len(each.labels):
            yield from ((each, combined) for combined in product(*values))
