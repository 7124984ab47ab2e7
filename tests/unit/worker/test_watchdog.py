"""Flow code that holds the scheduler is named, with its place, once."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.scheduler import ThreadScheduler
from stepwell.worker.watchdog import HELD_SECONDS_MAX, Watchdog

pytestmark = pytest.mark.threads
HANG_SECONDS = 50.0


class Hog(PooledActor):
    """Holds the scheduler until it is let go. Both are queues of C, used in one line: so it is nowhere else."""

    def __init__(self, entered: queue.SimpleQueue[None], let_go: queue.SimpleQueue[None]) -> None:
        self._entered = entered
        self._let_go = let_go

    def on_receive(self, message: object) -> None:
        self._entered.put(None) or self._let_go.get(timeout=HANG_SECONDS)


@pytest.fixture
def clock() -> VirtualClock:
    """However long the machine takes, no time passes but that which a test puts forward."""
    return VirtualClock()


@pytest.fixture
def scheduler(clock: VirtualClock) -> Iterator[ThreadScheduler]:
    made = ThreadScheduler(clock)
    made.start()
    yield made
    made.stop(HANG_SECONDS)


def test_who_holds_the_scheduler_is_told_once_with_its_place(
    scheduler: ThreadScheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    entered, let_go = queue.SimpleQueue[None](), queue.SimpleQueue[None]()
    watchdog = Watchdog(scheduler, clock.monotonic)
    scheduler.spawn(Hog, entered, let_go, name="e1").tell("go")
    entered.get(timeout=HANG_SECONDS)
    watchdog.look()
    assert watchdog.problem() == ""
    assert watchdog.held_at() == ""
    clock.advance(HELD_SECONDS_MAX + 1)
    watchdog.look()
    watchdog.look()
    place = watchdog.held_at()
    let_go.put(None)
    assert place.startswith("at ")
    assert place in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "e1 has held the scheduler for 3 s at " in caplog.text
    assert caplog.records[0].fields["execution"] == "e1"  # type: ignore[attr-defined]
    assert place.endswith(" in on_receive")


def test_an_idle_scheduler_is_no_problem(scheduler: ThreadScheduler, clock: VirtualClock) -> None:
    clock.advance(3600)
    assert Watchdog(scheduler, clock.monotonic).problem() == ""
