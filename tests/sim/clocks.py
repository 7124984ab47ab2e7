"""The clocks of simulated shards."""

from __future__ import annotations

import time

from stepwell.actors.kit.clock import SystemClock, VirtualClock


class WorldsClock:
    """The world's clock follows no server."""

    def __init__(self, clock: VirtualClock) -> None:
        self.monotonic = clock.monotonic

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        return


def shard_clock(clock: VirtualClock) -> SystemClock:
    """A clock as shards have it outside of simulations: it follows the server's, which is `time.time()` here."""
    return SystemClock(clock.monotonic, lambda: time.time())
