"""A running StepRunner, and step bodies that wait for the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from unit.actors.told import WaitingBox

from stepwell import step
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.runner import StepOrder, StepRunner
from stepwell.actors.store_events import StoreEvent
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall
from stepwell.store.leases import Grant

HANG_SECONDS = 50.0
HOUR_MS = 3_600_000
PARTITION = 3


class Stage:
    """A running StepRunner with two threads, and a lease that is good until a test lets it lapse."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.holdings = Holdings(self.clock.monotonic)
        self.holdings.hold(Grant(PARTITION, 1, "lease", True, 0), self.clock.monotonic() + 3600)
        self.seen: list[StoreEvent] = []
        self.ears: Callable[[StoreEvent], None] = self.seen.append
        self.runner = StepRunner(self.clock, self.holdings, threads=2, observer=lambda event: self.ears(event))
        self.runner.begin()

    def order(self, of: Any, *args: Any, path: str = "step", attempt: int = 1, lease: str = "lease") -> StepOrder:
        context = StepContext("e1", "f", of.name, path, attempt, "token", "e1:token", 7)
        return StepOrder(PARTITION, lease, StepCall(of, args, {}), context)

    def start(self, of: Any, *args: Any, box: WaitingBox | None = None, **order: Any) -> WaitingBox:
        box = box or WaitingBox()
        self.runner.start(self.order(of, *args, **order), box)  # type: ignore[arg-type]
        return box

    def fill(self, gate: Gate) -> None:
        """Let both threads hold a body."""
        for number in range(2):
            self.start(both(gate)["sync"], number, path=f"busy{number}")
            gate.wait_entered()

    def told(self) -> list[StoreEvent]:
        """What was observed of bodies that have ended: their threads, and the loop, have come to something else."""
        gate = Gate()
        self.fill(gate)
        self.start(both(gate)["async"], 2, path="busy2")
        gate.wait_entered()
        gate.open()
        return self.seen

    def regain(self) -> None:
        """Lose the partition and get it again, under a new lease."""
        self.holdings.drop(PARTITION)
        self.holdings.hold(Grant(PARTITION, 2, "new lease", True, 0), self.clock.monotonic() + 3600)


def an_hour_passes(clock: SystemClock) -> None:
    """By the time line that rows have; no timer counts by it."""
    at = clock.monotonic()
    clock.sync(clock.now_ms() + HOUR_MS, at, at)


class Gate:
    """Holds step bodies of either kind until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.entered.release()
        assert self._open.wait(HANG_SECONDS)

    async def pass_through_async(self) -> None:
        self.entered.release()
        await asyncio.to_thread(self._open.wait, HANG_SECONDS)

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=HANG_SECONDS)

    def open(self) -> None:
        self._open.set()


def both(gate: Gate) -> dict[str, Any]:
    """The same step, async and sync."""

    @step(name="held")
    async def held_async(n: int) -> int:
        await gate.pass_through_async()
        return n

    @step(name="held")
    def held(n: int) -> int:
        gate.pass_through()
        return n

    return {"async": held_async, "sync": held}


KINDS = pytest.mark.parametrize("kind", ["async", "sync"])
