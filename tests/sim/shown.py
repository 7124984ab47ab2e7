"""Sheets of one who has heard all that was told in a simulation."""

from __future__ import annotations

from collections.abc import Iterable

from sim.harness import World

from stepwell.actors import store_events
from stepwell.core.events import Event
from stepwell.metrics import instruments as i
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.shard import ShardMetrics
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.worker.observing import count_observed

_COUNTS = (store_events.ExecutionsCounted, store_events.BackoffsCounted, store_events.LyingCounted)


def sheet_of(world: World) -> Sheet:
    """All that was told of a world's executions, and what its shards' threads have observed."""
    sheet = _heard(world.events)
    counts = ShardMetrics(sheet)
    for seen in world.store_events:
        count_observed(counts, seen)
    return sheet


def moved(world: World) -> set[str]:
    """The full names of all metrics that were other than 0 at any moment of a simulation."""
    sheet = _heard(world.events)
    counts = ShardMetrics(sheet)
    found: set[str] = set()
    for at, seen in enumerate(world.store_events, 1):
        count_observed(counts, seen)
        if at == len(world.store_events) or isinstance(seen, _COUNTS):
            totals = Totals()
            totals.attach(0, sheet.source)
            found.update(name for name, _, value in samples_of(totals.take()) if value)
    names = {each.full_name for each in i.INSTRUMENTS}
    return {name if name in names else name.removesuffix("_count") for name in found} & names


def _heard(told: Iterable[Event]) -> Sheet:
    sheet = Sheet.in_memory()
    tell = MetricsSubscriber(sheet)
    for event in told:
        tell(event)
    return sheet
