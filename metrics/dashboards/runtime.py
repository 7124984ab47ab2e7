"""Workers, their shards, and what they use."""

from __future__ import annotations

from typing import Final

from stepwell.metrics.dashboards.pictures import Row, bars, lines, tabular
from stepwell.metrics.dashboards.queries import Query, recent

__all__ = ["RUNTIME"]

RUNTIME: Final = Row(
    "Runtime",
    (
        tabular(
            "Versions",
            "Which version runs where.",
            Query("max by (instance, version, python) (stepwell_build_info{WORKER})"),
        ),
        bars(
            "Up for",
            "Time since each worker was started.",
            Query("time() - max by (instance) (stepwell_worker_started_timestamp_seconds{WORKER})", "{{instance}}"),
            "s",
        ),
        lines(
            "Shards",
            "By state.",
            Query("sum by (state) (stepwell_shards{WORKER})", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Shards started again",
            "Since the point before, by what ended them.",
            recent("stepwell_shard_restarts_total", "{{cause}}", "cause"),
        ),
        lines(
            "Actors started again, mail to none",
            "Since the point before; parked: an actor failed too often.",
            recent("stepwell_actor_restarts_total", "{{actor}} {{reason}}", "actor, reason"),
            recent("stepwell_undelivered_total", "undelivered"),
        ),
        lines(
            "Messages and actors that wait",
            "Messages by whose mailbox, worker and shard; ready: actors with mail that wait for their turn.",
            Query(
                "sum by (actor, instance, shard) (stepwell_mailbox_messages{WORKER})",
                "{{actor}} {{instance}} {{shard}}",
            ),
            Query("sum by (instance, shard) (stepwell_actors_ready{WORKER})", "ready {{instance}} {{shard}}"),
        ),
        lines(
            "Entries in inboxes",
            "Commands and doorbells that are not applied yet, and what lies in the ingress.",
            Query("sum by (instance) (stepwell_inbox_length{WORKER})", "{{instance}}"),
            Query("sum(stepwell_ingress_length{WORKER})", "ingress"),
        ),
        lines(
            "Age of the oldest entry",
            "Of an inbox, by worker; counts: how old is what shows how much waits. It is absent after 15 s.",
            Query("max by (instance) (stepwell_inbox_lag_seconds{WORKER})", "{{instance}}"),
            Query("max by (instance) (stepwell_counts_age_seconds{WORKER})", "counts {{instance}}"),
            unit="s",
        ),
        lines(
            "Partitions owned",
            "By worker and shard, and how many there are.",
            Query("sum by (instance, shard) (stepwell_leases_held{WORKER})", "{{instance}} {{shard}}"),
            Query("max(stepwell_partitions{WORKER})", "all"),
        ),
        lines(
            "Memory of shards",
            "By worker and shard, without their step processes.",
            Query(
                "sum by (instance, shard) (stepwell_shard_resident_memory_bytes{WORKER})",
                "{{instance}} {{shard}}",
            ),
            unit="bytes",
        ),
        lines(
            "Cores that shards use",
            "By worker and shard; 1: its actors can't do more.",
            Query(
                "sum by (instance, shard) (rate(stepwell_shard_cpu_seconds_total{WORKER}[$__rate_interval]))",
                "{{instance}} {{shard}}",
            ),
        ),
        lines(
            "What a page of metrics takes",
            "To make the one before the last, by worker. No shard waits for it.",
            Query("max by (instance) (stepwell_exposition_seconds{WORKER})", "{{instance}}"),
            unit="s",
        ),
        lines(
            "Size of a page of metrics",
            "As it was sent, by worker.",
            Query("max by (instance) (stepwell_exposition_bytes{WORKER})", "{{instance}}"),
            unit="bytes",
        ),
        lines(
            "Redis errors",
            "Since the point before, by kind.",
            recent("stepwell_redis_errors_total", "{{kind}}", "kind"),
        ),
        lines(
            "Spans lost",
            "Since the point before, by why they could not be exported.",
            recent("stepwell_spans_lost_total", "{{reason}}", "reason"),
        ),
    ),
)
