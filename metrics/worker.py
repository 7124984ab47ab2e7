"""What a worker's parent counts itself: its shards."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from stepwell.actors.kit.clock import SystemClock
from stepwell.metrics.instruments import BUILD, SHARD_CPU, SHARD_MEMORY, SHARD_RESTARTS, SHARDS, STARTED
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.usage import Usage, usage_of

__all__ = ["SHARD_STATES", "WorkerMetrics", "tell_what_runs"]

SHARD_STATES: Final = ("starting", "running", "restarting", "ending")


class WorkerMetrics:
    """Metrics of the parent, on a sheet of its own. `refresh` may be called from any thread."""

    def __init__(self, sheet: Sheet, usage_of: Callable[[int], Usage | None] = usage_of) -> None:
        self._sheet = sheet
        self._usage_of = usage_of
        self._lock = threading.Lock()
        self._cpu_before: dict[int, float] = {}
        self._ended: dict[int, str] = {}
        self._count: Callable[[str], float] = lambda _state: 0
        self._living: Callable[[], Iterable[tuple[int, int]]] = lambda: ()
        tell_what_runs(sheet)

    def watch(self, count: Callable[[str], float], living: Callable[[], Iterable[tuple[int, int]]]) -> None:
        """Ask this at each refresh how many shards are in a state, and for the index and process id of those that
        have a process."""
        self._count, self._living = count, living

    def refresh(self) -> None:
        """Set what is only known when it is asked for."""
        for state in SHARD_STATES:
            self._sheet.level(SHARDS, state).set(self._count(state))
        with self._lock:
            for index, pid in self._living():
                self._look(index, pid)

    def restarted(self, cause: str) -> None:
        """A shard was started again."""
        self._sheet.count(SHARD_RESTARTS, cause).inc()

    def ended(self, index: int, pid: int) -> None:
        """A shard's process has ended, and is not buried yet."""
        with self._lock:
            usage = self._look(index, pid)
            if usage is not None:
                self._cpu_before[index] = self._cpu_before.get(index, 0.0) + usage.cpu_seconds
                self._ended[index] = usage.name
                self._sheet.level(SHARD_MEMORY, str(index)).clear()

    def _look(self, index: int, pid: int) -> Usage | None:
        usage = self._usage_of(pid)
        if usage is None or self._ended.get(index) == usage.name:
            return None
        self._sheet.level(SHARD_MEMORY, str(index)).set(usage.resident_bytes)
        total = self._cpu_before.get(index, 0.0) + usage.cpu_seconds
        self._sheet.shared_count(SHARD_CPU, str(index)).reach(total)
        return usage


def tell_what_runs(sheet: Sheet) -> None:
    """Say which version runs, and since when: since now."""
    try:
        own = version("stepwell")
    except PackageNotFoundError:
        own = "unknown"
    sheet.level(BUILD, own, platform.python_version()).set(1)
    sheet.level(STARTED).set(SystemClock().now_ms() / 1000)
