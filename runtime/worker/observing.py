"""What a shard's threads observe, to its metrics: one place for each kind."""

from __future__ import annotations

from stepwell.actors import store_events as seen
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.shard import ShardGauges

__all__ = ["count_observed"]


def count_observed(gauges: ShardGauges, event: StoreEvent) -> None:
    """Count it. From any thread."""
    match event:
        case seen.BatchWritten():
            gauges.batch_written(event.requests, event.replies, event.seconds)
        case seen.ExecutionsCounted():
            gauges.counted(event.sizes, event.waiting)
        case seen.BackoffsCounted():
            gauges.backing_off(event.by_flow)
        case seen.LyingCounted():
            gauges.lying(event.lying, event.oldest_age)
        case seen.StartsWait():
            gauges.starts_wait(event.ages)
        case seen.PartitionGained():
            gauges.gained(event.cause)
        case seen.PartitionRecovered():
            gauges.recovered(event.seconds)
        case seen.DuplicateSuppressed():
            gauges.repeated(event.kind)
        case seen.SweepFound():
            gauges.swept(event.entries, event.executions)
        case seen.DeadLettered():
            gauges.dead_lettered(event.kind)
        case seen.SuspectOpened():
            gauges.suspect_opened(event.kind)
        case seen.StepOverran():
            gauges.step_overran(event.flow, event.step)
        case seen.ActorFailed():
            gauges.actor_failed(event.parked)
        case seen.IngressTaken():
            gauges.taken_in(event.kind, event.count)
        case seen.LeftAlone():
            gauges.left_alone(event.kind)
        case seen.GuaranteeSeen():
            gauges.guarantee_seen(event.labels)
        case _:
            _count_trouble(gauges, event)


def _count_trouble(gauges: ShardGauges, event: StoreEvent) -> None:
    match event:
        case seen.StoreTrouble():
            gauges.store_trouble(event.kind)
        case seen.NotSafeYet():
            gauges.not_safe()
        case seen.Healed():
            gauges.healed()
        case seen.TailLost():
            gauges.tail_lost()
        case seen.RowDiverged():
            gauges.diverged()
        case seen.RowMissing():
            gauges.row_missing()
        case seen.Fenced() | seen.PartitionGone():
            pass  # fenced writes are counted one by one, and what is held is a gauge
