"""What is seen first: who backs off, why, for how long, how late, whose budgets end; what runs, what needs a person."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, lines, number, tabular
from stepwell.metrics.dashboards.queries import Query, by, in_time_shown

__all__ = ["GLANCE"]

_NEXT_DUE: Final = "stepwell_retry_next_due_timestamp_seconds{FLOW}"
_STEP: Final = "flow, step"
_LAST_ATTEMPT: Final = ("stepwell_step_attempts_left_bucket", 'FLOW, le="1.0"')
_USED_UP: Final = ("stepwell_step_failures_total", 'FLOW, reason="budget"')

# Of nothing Prometheus makes NaN; `>= 0` makes that no answer, for which a panel has words.
GLANCE: Final = Row(
    "At a glance",
    (
        number(
            "Backing off",
            "Executions of which a step waits for its next attempt. `stepwell top` shows them with their errors.",
            "sum(stepwell_executions_backing_off{FLOW})",
        ),
        number(
            "Next retry in",
            "Until the next of the waiting retries is due. A little below 0 between two counts: see Overdue.",
            f"min({_NEXT_DUE}) - time()",
            "s",
            when_empty="none waits",
        ),
        number(
            "Overdue",
            "How far the first of the waiting retries is past its due time. Half a minute may be the lag of counts.",
            f"max(clamp_min(time() - {_NEXT_DUE}, 0))",
            "s",
            colours=((60, "orange"), (120, "red")),
            when_empty="none waits",
        ),
        number(
            "95% of retries late by",
            "Or less: from the due time to the begin of the body.",
            "histogram_quantile(0.95, sum by (le)"
            " (rate(stepwell_retry_lateness_seconds_bucket{WORKER}[$__rate_interval]))) >= 0",
            "s",
            colours=((1, "orange"), (5, "red")),
            when_empty="none began",
        ),
        number(
            "Longest delay",
            "Chosen before a retry, in the time shown; the bound of its bucket.",
            f"histogram_quantile(1, {in_time_shown('stepwell_retry_backoff_seconds_bucket', 'FLOW', 'le')}) >= 0",
            "s",
            when_empty="none",
        ),
        number(
            "Attempts that fail",
            "Of all attempts, those that did not complete their step.",
            '1 - sum(rate(stepwell_step_attempts_total{FLOW, outcome="ok"}[$__rate_interval]))'
            " / sum(rate(stepwell_step_attempts_total{FLOW}[$__rate_interval])) >= 0",
            "percentunit",
            colours=((0.1, "orange"), (0.5, "red")),
            when_empty="no attempts",
        ),
        number(
            "Last attempts",
            "Steps that were given their last one, in the time shown: if it fails, they fail for good.",
            in_time_shown(*_LAST_ATTEMPT),
            colours=((0.5, "orange"),),
            when_empty="0",
        ),
        number(
            "Budgets used up",
            "Steps that failed at their last attempt, in the time shown.",
            in_time_shown(*_USED_UP),
            colours=((0.5, "red"),),
            when_empty="0",
        ),
        number(
            "Running",
            "Executions of which a step runs or is ready.",
            'sum(stepwell_executions{WORKER, status="running"})',
        ),
        number(
            "Waiting",
            "Executions that wait: a sleep, a signal, a child or a backoff.",
            'sum(stepwell_executions{WORKER, status="waiting"})',
        ),
        number(
            "Steps",
            "Attempts that completed, a second.",
            'sum(rate(stepwell_step_attempts_total{FLOW, outcome="ok"}[$__rate_interval]))',
            "ops",
        ),
        number(
            "Retries",
            "Attempts that failed and are tried again, a second.",
            "sum(rate(stepwell_step_retries_scheduled_total{FLOW}[$__rate_interval]))",
            "ops",
            when_empty="0",
        ),
        number(
            "Failed",
            "Executions that ended with an error in the time shown.",
            'sum(increase(stepwell_executions_total{FLOW, status="error"}[$__range]))',
            colours=((0.5, "red"),),
            when_empty="0",
        ),
        number(
            "Parked",
            "Executions that need a person or a deploy.",
            'sum(stepwell_executions{WORKER, status="parked"})',
            colours=((0.5, "red"),),
        ),
        number(
            "Dead letters",
            "Commands and starts that wait for a person.",
            "sum(stepwell_dead_letters{WORKER})",
            colours=((0.5, "red"),),
        ),
        number(
            "Workers",
            "Workers that Prometheus can scrape.",
            "count(stepwell_build_info{WORKER})",
            colours=((0.5, "green"),),
            below="red",
            when_empty="none",
        ),
        tabular(
            "Who backs off",
            "Flows with steps that wait for their next attempt. Next retry below 0: it is overdue.",
            Query("sum by (flow) (stepwell_executions_backing_off{FLOW}) > 0", "executions"),
            Query(f"min by (flow) ({_NEXT_DUE}) - time()", "next retry in", "s"),
            when_empty="nobody",
        ),
        tabular(
            "Steps with the most retries",
            "And why they are tried again, in the time shown: error, timeout, crash (of the step's process),"
            " retry_after (the error asked for its delay).",
            Query(
                f"topk(10, {in_time_shown('stepwell_step_retries_scheduled_total', 'FLOW', 'flow, step, reason')} > 0)",
                "retries",
            ),
            when_empty="none",
        ),
        tabular(
            "Whose budgets end",
            "Steps that were given their last attempt, and those that failed at it, in the time shown.",
            Query(
                f'label_replace(topk(10, {in_time_shown(*_LAST_ATTEMPT, _STEP)} > 0), "what", "last attempt", "", "")'
                f' or label_replace(topk(10, {in_time_shown(*_USED_UP, _STEP)} > 0), "what", "used up", "", "")',
                "steps",
            ),
            when_empty="nobody's",
        ),
        tabular(
            "Alerts",
            "What fires now, if this Prometheus has Stepwell's rules; docs/alerts.md says what to do about each.",
            Query(
                "max by (severity, alertname, job, instance, flow, step)"
                ' (ALERTS{alertname=~"Stepwell.*", alertstate="firing", job=~"$job|"})'
            ),
            when_empty="none fires",
        ),
        lines(
            "Attempts a second",
            "By how they end. Retryable and timeout: another one may follow.",
            by("outcome", "stepwell_step_attempts_total", "FLOW"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "Executions",
            "Executions that have not ended, and those in error, by status, in memory or not.",
            Query("sum by (status) (stepwell_executions{WORKER})", "{{status}}"),
            stacked=True,
        ),
    ),
)
