"""The shard's own threads write the black box: the scheduler, the step loop and the pool of threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from unit.actors.told import WaitingBox

from stepwell import step
from stepwell.actors.blackbox import BlackBox
from stepwell.actors.boxreport import BoxReport, read_box
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.scheduler import ThreadScheduler
from stepwell.actors.messages import StepDone, StepErred
from stepwell.actors.runner import StepOrder, StepRunner
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall
from stepwell.store.leases import Grant

pytestmark = pytest.mark.threads
HANG_SECONDS = 50.0


class Look:
    """What a reader of the file sees, from inside a body."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.box = BlackBox.create(path, 8)
        self.seen: list[tuple[BoxReport, int]] = []

    def now(self) -> BoxReport:
        report = read_box(self.path)
        assert report is not None
        return report

    def note(self) -> None:
        self.seen.append((self.now(), threading.get_ident()))


@pytest.fixture
def look(tmp_path: Path) -> Look:
    return Look(tmp_path / "box")


def run(look: Look, of: Any) -> StepDone | StepErred:
    """One attempt of a step on a runner with that box."""
    clock = SystemClock()
    holdings = Holdings(clock.monotonic)
    holdings.hold(Grant(3, 1, "lease", True, 0), clock.monotonic() + 3600)
    runner = StepRunner(clock, holdings, lambda _: None, threads=1, box=look.box)
    runner.begin()
    told = WaitingBox()
    context = StepContext("order-1", "f", of.name, "charge", 2, "ab" * 16, "order-1:token", 1)
    try:
        runner.start(StepOrder(3, "lease", StepCall(of, (), {}), context), told)  # type: ignore[arg-type]
        outcome: StepDone | StepErred = told.next()
        return outcome
    finally:
        runner.stop(5.0)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_a_body_is_in_the_box_with_its_thread_while_it_runs_and_not_after(look: Look, kind: str, fails: bool) -> None:
    def body() -> None:
        look.note()
        if fails:
            raise ValueError("no")

    @step(name="charge")
    async def on_loop() -> None:
        body()

    @step(name="charge")
    def on_thread() -> None:
        body()

    outcome = run(look, on_loop if kind == "loop" else on_thread)
    assert isinstance(outcome, StepErred if fails else StepDone)
    [(report, thread)] = look.seen
    [attempt] = report.attempts
    assert (attempt.partition, attempt.execution_id, attempt.path, attempt.attempt) == (3, "order-1", "charge", 2)
    assert (attempt.token, attempt.at_work) == ("ab" * 16, kind)
    assert thread == (report.loop_thread if kind == "loop" else attempt.thread)
    assert look.now().attempts == ()


def test_the_scheduler_says_who_has_a_turn_and_that_nobody_has(look: Look) -> None:
    class Driven(PooledActor):
        def on_receive(self, message: object) -> str:
            look.note()
            return "done"

    scheduler = ThreadScheduler(SystemClock(), turns=look.box)
    ref = scheduler.spawn(Driven, name="order-1")
    scheduler.start()
    try:
        assert ref.ask("go", timeout=HANG_SECONDS) == "done"
    finally:
        assert scheduler.stop(HANG_SECONDS)
    [(report, thread)] = look.seen
    assert report.driven == "order-1"
    assert 0 <= report.turn_seconds(report.read_at) < HANG_SECONDS
    assert report.scheduler_thread == thread
    assert look.now().turn is None
