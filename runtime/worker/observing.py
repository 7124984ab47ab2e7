"""What a shard's threads observe, to its metrics: one place for each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stepwell.actors import store_events as seen
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.shard import ShardMetrics

__all__ = ["ELSEWHERE", "count_observed"]

ELSEWHERE: Final = (seen.Fenced, seen.PartitionGone)
"""Counted where they come from: fenced writes one by one, and what is held is a gauge."""

_COUNT: Final[dict[type[StoreEvent], Callable[..., None]]] = {
    seen.BatchWritten: lambda to, event: to.batch_written(event.requests, event.replies, event.seconds),
    seen.ExecutionsCounted: lambda to, event: to.counted(event.sizes, event.waiting),
    seen.BackoffsCounted: lambda to, event: to.backing_off(event.by_flow),
    seen.LyingCounted: lambda to, event: to.lying(event.lying, event.oldest_age),
    seen.StartsWait: lambda to, event: to.starts_wait(event.ages),
    seen.PartitionGained: lambda to, event: to.gained(event.cause),
    seen.PartitionRecovered: lambda to, event: to.recovered(event.seconds),
    seen.DuplicateSuppressed: lambda to, event: to.repeated(event.kind),
    seen.SweepFound: lambda to, event: to.swept(event.entries, event.executions),
    seen.DeadLettered: lambda to, event: to.dead_lettered(event.kind),
    seen.SuspectOpened: lambda to, event: to.suspect_opened(event.kind),
    seen.StepOverran: lambda to, event: to.step_overran(event.flow, event.step),
    seen.ActorFailed: lambda to, event: to.actor_failed(event.parked),
    seen.IngressTaken: lambda to, event: to.taken_in(event.kind, event.count),
    seen.LeftAlone: lambda to, event: to.left_alone(event.kind),
    seen.GuaranteeSeen: lambda to, event: to.guarantee_seen(event.labels),
    seen.StoreTrouble: lambda to, event: to.store_trouble(event.kind),
    seen.NotSafeYet: lambda to, _: to.not_safe(),
    seen.Healed: lambda to, _: to.healed(),
    seen.TailLost: lambda to, _: to.tail_lost(),
    seen.RowDiverged: lambda to, _: to.diverged(),
    seen.RowMissing: lambda to, _: to.row_missing(),
}


def count_observed(to: ShardMetrics, event: StoreEvent) -> None:
    """Count it. From any thread."""
    count = _COUNT.get(type(event))
    if count is not None:
        count(to, event)
