"""Steps and executions: how many, how long, and what they wait for."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, lines, spread, tabular
from stepwell.metrics.dashboards.queries import Query, by, mean_of_the_longest, quantiles

__all__ = ["WORK"]

WORK: Final = Row(
    "Work",
    (
        lines(
            "Executions that end, a second",
            "By how they end.",
            by("status", "stepwell_executions_total", "FLOW"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "How long steps take",
            "On average, the ten that take longest.",
            mean_of_the_longest("stepwell_step_duration_seconds", "flow, step"),
            unit="s",
        ),
        spread(
            "How long bodies run",
            "How many attempts took how long. Diamonds are executions: `stepwell show ID`.",
            Query("sum by (le) (increase(stepwell_step_duration_seconds_bucket{FLOW}[$__rate_interval]))", "{{le}}"),
            "s",
        ),
        tabular(
            "Slowest steps",
            "99% of the attempts took no longer, in the time shown; the bound of a bucket, or between two.",
            Query(
                "topk(10, histogram_quantile(0.99, sum by (flow, step, le)"
                " (increase(stepwell_step_duration_seconds_bucket{FLOW}[$__range]))) > 0)",
                "99% within",
                "s",
            ),
            when_empty="none ran",
        ),
        lines(
            "How long attempts wait for room",
            "From when they were ready to the begin of the body.",
            *quantiles("stepwell_step_queue_seconds", "FLOW"),
            unit="s",
        ),
        lines(
            "Bodies that run",
            "And how many may, by where: on the event loop, on threads, in processes.",
            Query("sum by (place) (stepwell_steps_running{WORKER})", "{{place}}"),
            Query("sum by (place) (stepwell_steps_limit{WORKER})", "{{place}} at most"),
        ),
        lines(
            "Executions in memory",
            "By worker and shard; and how many may run at once.",
            Query("sum by (instance, shard) (stepwell_executions_in_memory{WORKER})", "{{instance}} {{shard}}"),
            Query("sum(stepwell_executions_running_limit{WORKER})", "may run"),
        ),
        lines(
            "What executions wait for",
            "A time that is known (a backoff, a sleep, a limit), or only what comes from outside.",
            Query("sum by (kind) (stepwell_executions_waiting{WORKER})", "{{kind}}"),
            stacked=True,
        ),
        lines(
            "How long executions take",
            "From begin to end, on average: the ten flows that take longest.",
            mean_of_the_longest("stepwell_execution_duration_seconds", "flow"),
            unit="s",
        ),
        spread(
            "How long executions took",
            "How many took how long. Diamonds are executions: `stepwell show ID`.",
            Query(
                "sum by (le) (increase(stepwell_execution_duration_seconds_bucket{FLOW}[$__rate_interval]))", "{{le}}"
            ),
            "s",
        ),
        lines(
            "How long executions are queued",
            "From creation to begin; and how long the one has waited by now that is let in next.",
            *quantiles("stepwell_execution_queue_seconds", "FLOW"),
            Query("max by (flow) (stepwell_executions_queued_oldest_seconds{FLOW})", "waits now: {{flow}}"),
            unit="s",
        ),
        lines(
            "Commands a second",
            "By what was asked for and what became of it; and entries of the ingress.",
            Query(
                "sum by (verb, outcome) (rate(stepwell_commands_total{WORKER}[$__rate_interval]))",
                "{{verb}} {{outcome}}",
            ),
            Query("sum by (verb) (rate(stepwell_ingress_total{WORKER}[$__rate_interval]))", "ingress: {{verb}}"),
            unit="ops",
        ),
        lines(
            "Executions parked",
            "Since the point before, by reason.",
            Query("sum by (reason) (increase(stepwell_executions_parked_total{FLOW}[$__rate_interval]))", "{{reason}}"),
            when_empty="none",
        ),
    ),
)
