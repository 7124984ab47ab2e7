"""What the promises rest on: the server, leases, writes, and what was put right."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, lines, tabular
from stepwell.metrics.dashboards.queries import Query, by, quantiles, recent

__all__ = ["SAFETY"]

SAFETY: Final = Row(
    "Safety",
    (
        tabular(
            "Guarantee in force",
            "What the server can keep of what was asked for; kept: no, if a promise is broken.",
            Query(
                "max by (instance, server, topology, durability, aof, eviction, replicas, kept)"
                " (stepwell_guarantee_info{WORKER})"
            ),
        ),
        lines(
            "Writes of rows, a second",
            "By Redis' reply.",
            by("reply", "stepwell_commits_total", "WORKER"),
            unit="ops",
            stacked=True,
        ),
        lines(
            "How long a batch of writes takes",
            "Until the last acknowledgement, with its wait for durability.",
            *quantiles("stepwell_commit_seconds", "WORKER"),
            unit="s",
        ),
        lines(
            "Requests in a batch",
            "On average, by worker.",
            Query(
                "sum by (instance) (rate(stepwell_commit_batch_size_sum{WORKER}[$__rate_interval]))"
                " / sum by (instance) (rate(stepwell_commit_batch_size_count{WORKER}[$__rate_interval]))",
                "{{instance}}",
            ),
        ),
        lines(
            "What should not happen",
            "Since the point before: writes that met another owner's lease, rows that somebody else changed, writes"
            " that Redis lost, batches not as safe as asked, rows that were listed and are not there.",
            recent("stepwell_fenced_commits_total", "fenced"),
            recent("stepwell_mirror_divergence_total", "diverged"),
            recent("stepwell_healed_executions_total", "rows restored"),
            recent("stepwell_tails_lost_total", "partitions set back"),
            recent("stepwell_not_safe_total", "not safe in time"),
            recent("stepwell_rows_missing_total", "row missing"),
        ),
        lines(
            "Repeats without a second effect",
            "Since the point before, by what was repeated.",
            recent("stepwell_duplicates_suppressed_total", "{{kind}}", "kind"),
        ),
        lines(
            "Recoveries",
            "Partitions taken over with what their last owner may have left undone, since the point before, by cause.",
            recent("stepwell_recoveries_total", "{{cause}}", "cause"),
        ),
        lines(
            "How long recoveries take",
            "From the grant until all that was cut short was seen to.",
            Query(
                "histogram_quantile(1, sum by (le) (increase(stepwell_recovery_seconds_bucket{WORKER}[$__range])))",
                "slowest in the time shown",
            ),
            unit="s",
        ),
        lines(
            "What sweeps find",
            "Inbox entries and due executions that nobody held, since the point before: a fault, or a bug.",
            recent("stepwell_sweep_found_total", "{{what}}", "what"),
        ),
        lines(
            "What kills shards",
            "Executions and entries that shards have died on, those opened all the same, steps that run set apart or"
            " wait for that, step processes that died, bodies that overran their timeout, and threads given up on.",
            Query("sum(stepwell_suspects{WORKER})", "suspects"),
            Query("sum(stepwell_quarantined_steps{WORKER})", "steps set apart"),
            Query("sum(stepwell_quarantined_steps_waiting{WORKER})", "wait to be set apart"),
            Query("sum(stepwell_abandoned_threads{WORKER})", "threads abandoned"),
            recent("stepwell_suspects_opened_total", "opened: {{kind}}", "kind"),
            Query("sum by (step) (increase(stepwell_step_crashes_total{FLOW}[$__rate_interval]))", "died: {{step}}"),
            Query("sum by (step) (increase(stepwell_step_overruns_total{FLOW}[$__rate_interval]))", "late: {{step}}"),
        ),
        lines(
            "New dead letters",
            "Since the point before, by reason.",
            recent("stepwell_dead_letters_total", "{{reason}}", "reason"),
        ),
        lines(
            "Left alone",
            "What a newer version wrote, since the point before.",
            recent("stepwell_left_alone_total", "{{kind}}", "kind"),
        ),
    ),
)
