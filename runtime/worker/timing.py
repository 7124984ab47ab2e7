"""Sets a shard's clock by the server's, once, before anything is stamped with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stepwell.actors.leases import SyncedClock

__all__ = ["set_by_server"]

ASKED_MOST: Final = 3
QUICK_SECONDS: Final = 0.002


def set_by_server(clock: SyncedClock, ask: Callable[[], int]) -> None:
    """Set the clock by the quickest of a few answers: `ask` answers with the server's time (ms).

    On a busy host one answer may take long, and would set it wrong by up to half of that for the first seconds; the
    very first one makes the connection. Raises as `ask` does.
    """
    ask()
    answers: list[tuple[float, int, float]] = []
    while len(answers) < ASKED_MOST and not any(took < QUICK_SECONDS for took, _, _ in answers):
        sent = clock.monotonic()
        server_ms = ask()
        answers.append((clock.monotonic() - sent, server_ms, sent))
    took, server_ms, sent = min(answers)
    clock.sync(server_ms, sent, sent + took)
