"""What a worker's parent counts itself: its shards."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from stepwell.metrics.instruments import BUILD, SHARD_RESTARTS, SHARDS
from stepwell.metrics.sheet import Sheet

__all__ = ["SHARD_STATES", "WorkerMetrics", "own_build"]

SHARD_STATES: Final = ("starting", "running", "restarting", "ending")


class WorkerMetrics:
    """Metrics of the parent, on a sheet of its own."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        for cause in sorted(SHARD_RESTARTS.labels[0].values or ()):
            sheet.count(SHARD_RESTARTS, cause)
        self._count: Callable[[str], float] = lambda _state: 0
        own_build(sheet)

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


def own_build(sheet: Sheet) -> None:
    """Say which version runs."""
    try:
        own = version("stepwell")
    except PackageNotFoundError:
        own = "unknown"
    sheet.level(BUILD, own, platform.python_version()).set(1)
