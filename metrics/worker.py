"""What a worker's parent counts itself: its shards."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from stepwell.actors.kit.clock import SystemClock
from stepwell.metrics.instruments import BUILD, SHARD_RESTARTS, SHARDS, STARTED
from stepwell.metrics.sheet import Sheet

__all__ = ["SHARD_STATES", "WorkerMetrics", "tell_what_runs"]

SHARD_STATES: Final = ("starting", "running", "restarting", "ending")


class WorkerMetrics:
    """Metrics of the parent, on a sheet of its own."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._count: Callable[[str], float] = lambda _state: 0
        tell_what_runs(sheet)

    def watch(self, count: Callable[[str], float]) -> None:
        """Ask this at each refresh how many shards are in a state."""
        self._count = count

    def refresh(self) -> None:
        """Set what is only known when it is asked for."""
        for state in SHARD_STATES:
            self._sheet.level(SHARDS, state).set(self._count(state))

    def restarted(self, cause: str) -> None:
        """A shard was started again."""
        self._sheet.count(SHARD_RESTARTS, cause).inc()


def tell_what_runs(sheet: Sheet) -> None:
    """Say which version runs, and since when: since now."""
    try:
        own = version("stepwell")
    except PackageNotFoundError:
        own = "unknown"
    sheet.level(BUILD, own, platform.python_version()).set(1)
    sheet.level(STARTED).set(SystemClock().now_ms() / 1000)
