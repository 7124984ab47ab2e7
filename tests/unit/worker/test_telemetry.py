"""What a shard tells, wired to its metrics and logs."""

from __future__ import annotations

import pytest

from stepwell.actors import store_events
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.sheet import Sheet
from stepwell.worker import telemetry
from stepwell.worker.telemetry import Telemetry


@pytest.mark.parametrize(
    ("event", "ticks"),
    [
        (store_events.ExecutionsCounted({}, {}), 1),
        (store_events.StoreTrouble("inbox", "unreachable", "no connection to Redis"), 1),
        (store_events.NotSafeYet(), 0),
    ],
)
def test_the_log_tells_what_it_left_out_while_redis_is_away_too(
    monkeypatch: pytest.MonkeyPatch, event: StoreEvent, ticks: int
) -> None:
    ticked: list[bool] = []
    monkeypatch.setattr(telemetry, "tick_logging", ticked.append)
    Telemetry(Sheet.in_memory()).observe(event)
    assert ticked == [False] * ticks
