"""Attempts, backoffs and their ends, in detail."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, bars, lines, spread
from stepwell.metrics.dashboards.queries import Query, by, quantiles

__all__ = ["RETRIES"]

RETRIES: Final = Row(
    "Retries",
    (
        lines(
            "Backing off, by flow",
            "Executions of which a step waits for its next attempt: the ten flows with most.",
            Query("topk(10, sum by (flow) (stepwell_executions_backing_off{FLOW}))", "{{flow}}"),
        ),
        bars(
            "Next retry, by flow",
            "Until it is due, the ten flows that are next. Below 0: it is overdue.",
            Query("bottomk(10, min by (flow) (stepwell_retry_next_due_timestamp_seconds{FLOW}) - time())", "{{flow}}"),
            "s",
            when_empty="none waits",
        ),
        spread(
            "Delays chosen",
            "How many backoffs of which length began.",
            Query("sum by (le) (increase(stepwell_retry_backoff_seconds_bucket{FLOW}[$__rate_interval]))", "{{le}}"),
            "s",
        ),
        lines(
            "How late retries begin",
            "From the due time to the begin of the body.",
            *quantiles("stepwell_retry_lateness_seconds", "WORKER"),
            unit="s",
        ),
        lines(
            "Retries scheduled, a second",
            "By what failed: an error, a timeout, a process that died, an error that asked for its own delay.",
            by("reason", "stepwell_step_retries_scheduled_total", "FLOW"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "What wakes retries up, a second",
            "Its timer, a person, or the loading of an execution that was overdue by then.",
            by("source", "stepwell_retry_wakeups_total", "WORKER"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "Backoffs that ended otherwise, a second",
            "Cancelled, or wound up with a gather.",
            by("reason", "stepwell_backoffs_abandoned_total", "WORKER"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "Steps that fail for good, a second",
            "By reason; budget: all attempts are used up.",
            by("reason", "stepwell_step_failures_total", "FLOW"),
            unit="ops",
            stacked=True,
        ),
        spread(
            "Attempts until success",
            "At which attempt steps complete.",
            Query("sum by (le) (increase(stepwell_step_attempts_to_success_bucket{FLOW}[$__rate_interval]))", "{{le}}"),
        ),
    ),
)
