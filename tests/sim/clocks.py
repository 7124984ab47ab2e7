"""The clocks of simulated shards."""

from __future__ import annotations

from stepwell.actors.kit.clock import VirtualClock


class WorldsClock:
    """The world's clock follows no server."""

    def __init__(self, clock: VirtualClock) -> None:
        self.monotonic = clock.monotonic

    def sync(self, server_ms: int, sent_monotonic: float, received_monotonic: float) -> None:
        return
