"""Simulations: `make_world(flow, ...)` makes a world whose time is virtual, also for the server and its Lua scripts.

Every world is audited (`audit.py`) unless it is made with `audited=False`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sim.audit import Audit
from sim.harness import World

from stepwell.flow.definitions import FlowLike


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Makes worlds; the last one's clock is everybody's time."""
    worlds: list[World] = []

    def make(*flows: FlowLike, audited: bool = True, loses_rows: bool = False, **options: Any) -> World:
        monkeypatch.setattr(time, "time", lambda: worlds[-1].clock.now_ms() / 1000 if worlds else 1_700_000_000.0)
        world = World(flows, **options)
        worlds.append(world)
        if audited:
            world.audit = Audit(world, loses_rows=loses_rows)
        return world

    yield make
    for world in worlds:
        world.close()
