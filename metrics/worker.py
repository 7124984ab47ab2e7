"""What a worker's parent counts itself: its shards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from stepwell.metrics.names import one_of

__all__ = ["RESTART_CAUSES", "SHARD_STATES", "WorkerMetrics"]

RESTART_CAUSES: Final = frozenset({"killed", "exit", "failed", "hang", "silent", "nonsense", "stuck"})
SHARD_STATES: Final = ("starting", "running", "restarting", "ending")


class WorkerMetrics:
    """Metrics of the parent, created on the given registry (one `WorkerMetrics` a registry)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "stepwell_shard_restarts",
            "Shards that were started again after they had died, by what ended them.",
            ["cause"],
            registry=registry,
        )
        for cause in RESTART_CAUSES:
            self._restarts.labels(cause)
        self._shards = Gauge("stepwell_shards", "Shards of the worker, by state.", ["state"], registry=registry)

    def watch(self, count: Callable[[str], float]) -> None:
        """Ask this at each scrape how many shards are in a state."""
        for state in SHARD_STATES:
            self._shards.labels(state).set_function(partial(count, state))

    def restarted(self, cause: str) -> None:
        """A shard was started again."""
        self._restarts.labels(one_of(cause, RESTART_CAUSES)).inc()
