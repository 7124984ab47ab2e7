"""Steps and executions: how many, how long, and what they wait for."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, lines
from stepwell.metrics.dashboards.queries import Query, by, quantiles

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
            "The ten slowest: 99% of the attempts took no longer.",
            Query(
                "topk(10, histogram_quantile(0.99, sum by (flow, step, le)"
                " (rate(stepwell_step_duration_seconds_bucket{FLOW}[$__rate_interval]))))",
                "{{flow}} {{step}}",
            ),
            unit="s",
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
            "From begin to end, by flow: half of them took no longer.",
            Query(
                "histogram_quantile(0.5, sum by (flow, le)"
                " (rate(stepwell_execution_duration_seconds_bucket{FLOW}[$__rate_interval])))",
                "{{flow}}",
            ),
            unit="s",
        ),
        lines(
            "How long executions are queued",
            "From creation to begin.",
            *quantiles("stepwell_execution_queue_seconds", "FLOW"),
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
