"""When to take over from a dead process of this host: its parent comes first, for it can read the black box."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.worker.identity import is_dead

__all__ = ["Patience"]

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0


class Patience:
    """Called with a lease's `host_info`: whether its process is dead and nobody else looks after that.

    Right after the start a dead process is most likely an earlier life of this worker, which has no parent any more.
    """

    def __init__(self, monotonic: Callable[[], float], is_dead: Callable[[str], bool] = is_dead) -> None:
        self._monotonic = monotonic
        self._is_dead = is_dead
        self._began = monotonic()
        self._seen: dict[str, float] = {}

    def __call__(self, host_info: str) -> bool:
        if not self._is_dead(host_info):
            self._seen.pop(host_info, None)
            return False
        now = self._monotonic()
        waited = now - self._seen.setdefault(host_info, now)
        if waited < PATIENCE_SECONDS and now - self._began > FRESH_SECONDS:
            return False
        del self._seen[host_info]
        return True
