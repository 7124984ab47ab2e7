"""What the dashboard shows: its panels, their queries, what each is for. `dashboard` makes Grafana's JSON of it.

In queries `WORKER` stands for the chosen workers, `FLOW` for the chosen workers and flows, `$__rate_interval` and
`$__range` are Grafana's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["ROWS", "Kind", "Panel", "Query", "Row"]


class Kind(Enum):
    """How a panel shows its numbers; the values are Grafana's words."""

    NUMBER = "stat"
    LINES = "timeseries"
    BARS = "bargauge"
    SPREAD = "heatmap"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """One query and the name of its lines; `{{label}}` stands for a label's value."""

    promql: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `unit` is Grafana's id of one; `bad_above` colours what is greater."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    unit: str = "short"
    stacked: bool = False
    bad_above: float | None = None
    when_empty: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


def _number(
    title: str,
    meaning: str,
    promql: str,
    unit: str = "short",
    *,
    bad_above: float | None = None,
    when_empty: str = "",
) -> Panel:
    return Panel(title, meaning, (Query(promql),), Kind.NUMBER, unit, bad_above=bad_above, when_empty=when_empty)


def _by(label: str, name: str, of: str) -> Query:
    """Events a second, by a label."""
    return Query(f"sum by ({label}) (rate({name}{{{of}}}[$__rate_interval]))", f"{{{{{label}}}}}")


def _recent(name: str, legend: str, by: str = "") -> Query:
    """How many events since the point before, as is right for what is rare."""
    return Query(f"sum{f' by ({by})' if by else ''} (increase({name}{{WORKER}}[$__rate_interval]))", legend)


def _quantiles(name: str, of: str, by: str = "") -> tuple[Query, ...]:
    labels, legend = (f"{by}, le", f"{{{{{by}}}}} ") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({labels}) (rate({name}_bucket{{{of}}}[$__rate_interval])))",
            f"{legend}{word}",
        )
        for share, word in ((0.5, "half within"), (0.95, "95% within"), (0.99, "99% within"))
    )


GLANCE: Final = Row(
    "At a glance",
    (
        _number(
            "Running",
            "Executions of which a step runs or is ready.",
            'sum(stepwell_executions{WORKER, status="running"})',
        ),
        _number(
            "Waiting",
            "Executions that wait: a sleep, a signal, a child or a backoff.",
            'sum(stepwell_executions{WORKER, status="waiting"})',
        ),
        _number(
            "Backing off",
            "Executions of which a step waits for its next attempt.",
            "sum(stepwell_executions_backing_off{FLOW})",
        ),
        _number(
            "Next retry in",
            "Until the next of the waiting retries is due. Below 0: it is overdue.",
            "min(stepwell_retry_next_due_timestamp_seconds{FLOW}) - time()",
            "s",
            when_empty="none waits",
        ),
        _number(
            "Steps/s",
            "Attempts that completed.",
            'sum(rate(stepwell_step_attempts_total{FLOW, outcome="ok"}[$__rate_interval]))',
        ),
        _number(
            "Retries/s",
            "Attempts that failed and are tried again.",
            "sum(rate(stepwell_step_retries_scheduled_total{FLOW}[$__rate_interval]))",
        ),
        _number(
            "Failed",
            "Executions that ended with an error in the time shown.",
            'sum(increase(stepwell_executions_total{FLOW, status="error"}[$__range]))',
            bad_above=0,
            when_empty="0",
        ),
        _number(
            "Parked",
            "Executions that need a person or a deploy.",
            'sum(stepwell_executions{WORKER, status="parked"})',
            bad_above=0,
        ),
        _number(
            "Dead letters",
            "Commands and starts that wait for a person.",
            "sum(stepwell_dead_letters{WORKER})",
            bad_above=0,
        ),
        _number(
            "Attempts that fail",
            "Of all attempts, those that did not complete their step.",
            '1 - sum(rate(stepwell_step_attempts_total{FLOW, outcome="ok"}[$__rate_interval]))'
            " / sum(rate(stepwell_step_attempts_total{FLOW}[$__rate_interval]))",
            "percentunit",
            when_empty="no attempts",
        ),
        _number("Workers", "Workers that Prometheus can scrape.", "count(stepwell_build_info{WORKER})"),
        _number("Shards", "Shards that run.", 'sum(stepwell_shards{WORKER, state="running"})'),
        Panel(
            "Executions",
            "Executions that have not ended, and those in error, by status, in memory or not.",
            (Query("sum by (status) (stepwell_executions{WORKER})", "{{status}}"),),
            stacked=True,
        ),
        Panel(
            "Executions that end, a second",
            "By how they end.",
            (_by("status", "stepwell_executions_total", "FLOW"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Attempts a second",
            "By how they end. Retryable and timeout: another one may follow.",
            (_by("outcome", "stepwell_step_attempts_total", "FLOW"),),
            unit="ops",
            stacked=True,
        ),
    ),
)

RETRIES: Final = Row(
    "Retries",
    (
        Panel(
            "Who backs off",
            "Executions of which a step waits for its next attempt, by flow.",
            (Query("sum by (flow) (stepwell_executions_backing_off{FLOW})", "{{flow}}"),),
            stacked=True,
        ),
        Panel(
            "Next retry, by flow",
            "Seconds until it is due. Below 0: it is overdue.",
            (Query("min by (flow) (stepwell_retry_next_due_timestamp_seconds{FLOW}) - time()", "{{flow}}"),),
            Kind.BARS,
            "s",
            when_empty="none waits",
        ),
        Panel(
            "Delays chosen",
            "How many backoffs of which length began.",
            (Query("sum by (le) (increase(stepwell_retry_backoff_seconds_bucket{FLOW}[$__rate_interval]))", "{{le}}"),),
            Kind.SPREAD,
            "s",
        ),
        Panel(
            "How late retries begin",
            "From the due time to the begin of the body.",
            _quantiles("stepwell_retry_lateness_seconds", "WORKER"),
            unit="s",
        ),
        Panel(
            "Retries scheduled, a second",
            "By what failed: an error, a timeout, a process that died, an error that asked for its own delay.",
            (_by("reason", "stepwell_step_retries_scheduled_total", "FLOW"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "What wakes retries up, a second",
            "Its timer, a person, or the loading of an execution that was overdue by then.",
            (_by("source", "stepwell_retry_wakeups_total", "WORKER"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Backoffs that ended otherwise, a second",
            "Cancelled, or wound up with a gather.",
            (_by("reason", "stepwell_backoffs_abandoned_total", "WORKER"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Steps that fail for good, a second",
            "By reason; budget: all attempts are used up.",
            (_by("reason", "stepwell_step_failures_total", "FLOW"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Attempts until success",
            "At which attempt steps complete.",
            (
                Query(
                    "sum by (le) (increase(stepwell_step_attempts_to_success_bucket{FLOW}[$__rate_interval]))", "{{le}}"
                ),
            ),
            Kind.SPREAD,
        ),
        Panel(
            "Retries on their last attempt",
            "Steps that fail for good if their next attempt fails, in the time shown.",
            (
                Query(
                    "topk(10, sum by (flow, step)"
                    ' (increase(stepwell_step_attempts_left_bucket{FLOW, le="1.0"}[$__range])))'
                ),
            ),
            Kind.TABLE,
        ),
        Panel(
            "Steps with the most retries",
            "In the time shown.",
            (Query("topk(10, sum by (flow, step) (increase(stepwell_step_retries_scheduled_total{FLOW}[$__range])))"),),
            Kind.TABLE,
        ),
    ),
)

WORK: Final = Row(
    "Work",
    (
        Panel(
            "How long steps take",
            "The ten slowest: 99% of the attempts took no longer.",
            (
                Query(
                    "topk(10, histogram_quantile(0.99, sum by (flow, step, le)"
                    " (rate(stepwell_step_duration_seconds_bucket{FLOW}[$__rate_interval]))))",
                    "{{flow}} {{step}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "How long attempts wait for room",
            "From when they were ready to the begin of the body.",
            _quantiles("stepwell_step_queue_seconds", "FLOW"),
            unit="s",
        ),
        Panel(
            "Bodies that run",
            "And how many may, by where: on the event loop, on threads, in processes.",
            (
                Query("sum by (place) (stepwell_steps_running{WORKER})", "{{place}}"),
                Query("sum by (place) (stepwell_steps_limit{WORKER})", "{{place}} at most"),
            ),
        ),
        Panel(
            "Executions in memory",
            "By worker and shard; and how many may run at once.",
            (
                Query("sum by (instance, shard) (stepwell_executions_in_memory{WORKER})", "{{instance}} {{shard}}"),
                Query("sum(stepwell_executions_running_limit{WORKER})", "may run"),
            ),
        ),
        Panel(
            "What executions wait for",
            "A time that is known (a backoff, a sleep, a limit), or only what comes from outside.",
            (Query("sum by (kind) (stepwell_executions_waiting{WORKER})", "{{kind}}"),),
            stacked=True,
        ),
        Panel(
            "How long executions take",
            "From begin to end, by flow: half of them took no longer.",
            (
                Query(
                    "histogram_quantile(0.5, sum by (flow, le)"
                    " (rate(stepwell_execution_duration_seconds_bucket{FLOW}[$__rate_interval])))",
                    "{{flow}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "How long executions are queued",
            "From creation to begin.",
            _quantiles("stepwell_execution_queue_seconds", "FLOW"),
            unit="s",
        ),
        Panel(
            "Commands a second",
            "By what was asked for and what became of it; and entries of the ingress.",
            (
                Query(
                    "sum by (verb, outcome) (rate(stepwell_commands_total{WORKER}[$__rate_interval]))",
                    "{{verb}} {{outcome}}",
                ),
                Query("sum by (verb) (rate(stepwell_ingress_total{WORKER}[$__rate_interval]))", "ingress: {{verb}}"),
            ),
            unit="ops",
        ),
        Panel(
            "Executions parked",
            "Since the point before, by reason.",
            (
                Query(
                    "sum by (reason) (increase(stepwell_executions_parked_total{FLOW}[$__rate_interval]))", "{{reason}}"
                ),
            ),
            when_empty="none",
        ),
    ),
)

SAFETY: Final = Row(
    "Safety",
    (
        Panel(
            "Guarantee in force",
            "What the server can keep of what was asked for; kept: no, if a promise is broken.",
            (
                Query(
                    "max by (instance, server, topology, durability, aof, eviction, replicas, kept)"
                    " (stepwell_guarantee_info{WORKER})"
                ),
            ),
            Kind.TABLE,
        ),
        Panel(
            "Writes of rows, a second",
            "By Redis' reply.",
            (_by("reply", "stepwell_commits_total", "WORKER"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "How long a batch of writes takes",
            "Until the last acknowledgement, with its wait for durability.",
            _quantiles("stepwell_commit_seconds", "WORKER"),
            unit="s",
        ),
        Panel(
            "Requests in a batch",
            "On average, by worker.",
            (
                Query(
                    "sum by (instance) (rate(stepwell_commit_batch_size_sum{WORKER}[$__rate_interval]))"
                    " / sum by (instance) (rate(stepwell_commit_batch_size_count{WORKER}[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "What should not happen",
            "Since the point before: writes that met another owner's lease, rows that somebody else changed, writes"
            " that Redis lost, batches not as safe as asked, rows that were listed and are not there.",
            (
                _recent("stepwell_fenced_commits_total", "fenced"),
                _recent("stepwell_mirror_divergence_total", "diverged"),
                _recent("stepwell_healed_executions_total", "rows restored"),
                _recent("stepwell_tails_lost_total", "partitions set back"),
                _recent("stepwell_not_safe_total", "not safe in time"),
                _recent("stepwell_rows_missing_total", "row missing"),
            ),
        ),
        Panel(
            "Repeats without a second effect",
            "Since the point before, by what was repeated.",
            (_recent("stepwell_duplicates_suppressed_total", "{{kind}}", "kind"),),
        ),
        Panel(
            "Recoveries",
            "Partitions taken over with what their last owner may have left undone, since the point before, by cause.",
            (_recent("stepwell_recoveries_total", "{{cause}}", "cause"),),
        ),
        Panel(
            "How long recoveries take",
            "From the grant until all that was cut short was seen to.",
            (
                Query(
                    "histogram_quantile(1, sum by (le) (increase(stepwell_recovery_seconds_bucket{WORKER}[$__range])))",
                    "slowest in the time shown",
                ),
            ),
            unit="s",
        ),
        Panel(
            "What sweeps find",
            "Inbox entries and due executions that nobody held, since the point before: a fault, or a bug.",
            (_recent("stepwell_sweep_found_total", "{{what}}", "what"),),
        ),
        Panel(
            "What kills shards",
            "Executions and entries that shards have died on, those opened all the same, steps that run set apart,"
            " step processes that died, and threads given up on.",
            (
                Query("sum(stepwell_suspects{WORKER})", "suspects"),
                Query("sum(stepwell_quarantined_steps{WORKER})", "steps set apart"),
                Query("sum(stepwell_abandoned_threads{WORKER})", "threads abandoned"),
                _recent("stepwell_suspects_opened_total", "opened: {{kind}}", "kind"),
                Query(
                    "sum by (step) (increase(stepwell_step_crashes_total{FLOW}[$__rate_interval]))", "died: {{step}}"
                ),
            ),
        ),
        Panel(
            "Dead letters",
            "Since the point before, by reason.",
            (_recent("stepwell_dead_letters_total", "{{reason}}", "reason"),),
        ),
        Panel(
            "Left alone",
            "What a newer version wrote, since the point before.",
            (_recent("stepwell_left_alone_total", "{{kind}}", "kind"),),
        ),
    ),
)

RUNTIME: Final = Row(
    "Runtime",
    (
        Panel(
            "Workers",
            "Which version runs where.",
            (Query("max by (instance, version, python) (stepwell_build_info{WORKER})"),),
            Kind.TABLE,
        ),
        Panel(
            "Up for",
            "Time since each worker was started.",
            (Query("time() - max by (instance) (stepwell_worker_started_timestamp_seconds{WORKER})", "{{instance}}"),),
            Kind.BARS,
            "s",
        ),
        Panel(
            "Shards",
            "By state.",
            (Query("sum by (state) (stepwell_shards{WORKER})", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Shards started again",
            "Since the point before, by what ended them.",
            (_recent("stepwell_shard_restarts_total", "{{cause}}", "cause"),),
        ),
        Panel(
            "Actors started again, mail to none",
            "Since the point before; parked: an actor failed too often.",
            (
                _recent("stepwell_actor_restarts_total", "{{actor}} {{reason}}", "actor, reason"),
                _recent("stepwell_undelivered_total", "undelivered"),
            ),
        ),
        Panel(
            "Messages and actors that wait",
            "Messages by whose mailbox, worker and shard; ready: actors with mail that wait for their turn.",
            (
                Query(
                    "sum by (actor, instance, shard) (stepwell_mailbox_messages{WORKER})",
                    "{{actor}} {{instance}} {{shard}}",
                ),
                Query("sum by (instance, shard) (stepwell_actors_ready{WORKER})", "ready {{instance}} {{shard}}"),
            ),
        ),
        Panel(
            "Entries in inboxes",
            "Commands and doorbells that are not applied yet, and what lies in the ingress.",
            (
                Query("sum by (instance) (stepwell_inbox_length{WORKER})", "{{instance}}"),
                Query("sum(stepwell_ingress_length{WORKER})", "ingress"),
            ),
        ),
        Panel(
            "Age of the oldest entry",
            "Of an inbox, by worker.",
            (Query("max by (instance) (stepwell_inbox_lag_seconds{WORKER})", "{{instance}}"),),
            unit="s",
        ),
        Panel(
            "Partitions owned",
            "By worker and shard, and how many there are.",
            (
                Query("sum by (instance, shard) (stepwell_leases_held{WORKER})", "{{instance}} {{shard}}"),
                Query("max(stepwell_partitions{WORKER})", "all"),
            ),
        ),
        Panel(
            "Memory of shards",
            "By worker and shard, without their step processes.",
            (
                Query(
                    "sum by (instance, shard) (stepwell_shard_resident_memory_bytes{WORKER})",
                    "{{instance}} {{shard}}",
                ),
            ),
            unit="bytes",
        ),
        Panel(
            "Cores that shards use",
            "By worker and shard; 1: its actors can't do more.",
            (
                Query(
                    "sum by (instance, shard) (rate(stepwell_shard_cpu_seconds_total{WORKER}[$__rate_interval]))",
                    "{{instance}} {{shard}}",
                ),
            ),
        ),
        Panel(
            "What a page of metrics takes",
            "To make the one before the last, by worker. No shard waits for it.",
            (Query("max by (instance) (stepwell_exposition_seconds{WORKER})", "{{instance}}"),),
            unit="s",
        ),
        Panel(
            "Size of a page of metrics",
            "As it was sent, by worker.",
            (Query("max by (instance) (stepwell_exposition_bytes{WORKER})", "{{instance}}"),),
            unit="bytes",
        ),
        Panel(
            "Redis errors",
            "Since the point before, by kind.",
            (_recent("stepwell_redis_errors_total", "{{kind}}", "kind"),),
        ),
    ),
)

ROWS: Final = (GLANCE, RETRIES, WORK, SAFETY, RUNTIME)
