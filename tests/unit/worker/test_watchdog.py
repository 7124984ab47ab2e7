"""Flow code that holds the scheduler is named, with its place, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.scheduler import ThreadScheduler
from stepwell.worker.watchdog import HELD_SECONDS_MAX, Watchdog

pytestmark = pytest.mark.threads
HANG_SECONDS = 20.0


class Hog(PooledActor):
    """Holds the scheduler until it is let go."""

    def __init__(self, entered: threading.Event, let_go: threading.Event) -> None:
        self._entered = entered
        self._let_go = let_go

    def on_receive(self, message: object) -> None:
        self._entered.set()
        assert self._let_go.wait(HANG_SECONDS)


class Later:
    """Time that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._clock = SystemClock()

    def __call__(self) -> float:
        return self._clock.monotonic() + self.ahead


@pytest.fixture
def scheduler() -> Iterator[ThreadScheduler]:
    made = ThreadScheduler(SystemClock())
    made.start()
    yield made
    made.stop(HANG_SECONDS)


def test_who_holds_the_scheduler_is_told_once_with_its_place(
    scheduler: ThreadScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    entered, let_go, now = threading.Event(), threading.Event(), Later()
    watchdog = Watchdog(scheduler, now)
    scheduler.spawn(Hog, entered, let_go, name="e1").tell("go")
    assert entered.wait(HANG_SECONDS)
    watchdog.look()
    assert watchdog.problem() == ""
    assert watchdog.held_at() == ""
    now.ahead = HELD_SECONDS_MAX + 1
    watchdog.look()
    watchdog.look()
    place = watchdog.held_at()
    let_go.set()
    assert place.startswith("at ")
    assert place in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "e1 has held the scheduler for 3 s at " in caplog.text
    assert caplog.records[0].fields["execution"] == "e1"  # type: ignore[attr-defined]
    assert "threading.py" in caplog.text


def test_an_idle_scheduler_is_no_problem(scheduler: ThreadScheduler) -> None:
    now = Later()
    now.ahead = 3600
    assert Watchdog(scheduler, now).problem() == ""
