"""Whatever an actor raises, wherever, reaches its supervisor and harms nobody else."""

from __future__ import annotations

from typing import Any

import pykka
import pytest

from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.scheduler import ActorCrashed, ThreadScheduler, VirtualScheduler

HANG_SECONDS = 50.0
WHERE = ["constructor", "on_start", "on_receive", "timer", "on_stop"]
ERRORS = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit]


class Fragile(PooledActor):
    """Raises in the place it is told to; the place is the class attribute `where`."""

    where = ""
    error: BaseException = ValueError()

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.break_in("constructor")

    def break_in(self, place: str) -> None:
        if place == self.where:
            raise self.error

    def on_start(self) -> None:
        self.break_in("on_start")
        self.timers.start("soon", 0.001, "timer")

    def on_receive(self, message: Any) -> None:
        self.break_in(message)
        if message == "timer" and self.where == "on_stop":
            self.stop()

    def on_stop(self) -> None:
        self.stage.note("on_stop")
        self.break_in("on_stop")

    def on_failure(self, *exc_info: Any) -> None:
        self.stage.note("on_failure", exc_info[1])


def fragile(place: str, error: BaseException) -> type[Fragile]:
    return type("Fragile", (Fragile,), {"where": place, "error": error})


@pytest.mark.parametrize("error_class", ERRORS)
@pytest.mark.parametrize("where", WHERE)
def test_it_reaches_the_supervisor_and_the_others_live(stage: Any, boss: Any, where: str, error_class: Any) -> None:
    error = error_class("broken")
    neighbour = stage.spawn(name="neighbour")
    ref = stage.spawn(fragile(where, error), name="child", supervisor=boss)
    ref.tell("on_receive" if where == "on_receive" else "nothing")
    stage.until(lambda: stage.failures)

    (failure,) = stage.failures
    assert failure.name == "child"
    assert failure.ref is ref
    assert failure.error is error
    assert failure.where == where
    assert f"{error_class.__name__}: broken" in failure.traceback
    assert "in break_in" in failure.traceback
    assert not ref.is_alive()
    assert neighbour.ask(lambda actor: actor.name, timeout=HANG_SECONDS) == "neighbour"
    assert boss.is_alive()
    assert stage.crashes == []


@pytest.mark.parametrize("error_class", ERRORS)
def test_who_asks_an_actor_that_raises_is_answered(stage: Any, boss: Any, error_class: Any) -> None:
    def explode(_actor: Any) -> None:
        raise error_class("broken")

    ref = stage.spawn(name="child", supervisor=boss)
    stage.open()
    # What would end the asker's thread reaches it as a plain error.
    expected = error_class if issubclass(error_class, Exception) else pykka.ActorDeadError
    with pytest.raises(expected, match="broken"):
        ref.ask(explode, timeout=HANG_SECONDS)
    stage.until(lambda: stage.failures)
    assert isinstance(stage.failures[0].error, error_class)
    assert not ref.is_alive()


@pytest.mark.parametrize("where", ["constructor", "on_start", "on_receive", "timer"])
def test_who_waits_in_the_mailbox_of_an_actor_that_fails_is_answered(stage: Any, boss: Any, where: str) -> None:
    ref = stage.spawn(fragile(where, SystemExit(1)), name="child", supervisor=boss)
    if where != "timer":
        ref.tell("on_receive")
        future = ref.ask("anyone?", block=False)
        stage.open()
    else:
        stage.until(lambda: stage.failures)
        future = ref.ask("anyone?", block=False)
    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=HANG_SECONDS)


def test_what_was_left_in_the_mailbox_goes_to_the_supervisor(stage: Any, boss: Any) -> None:
    def explode(_actor: Any) -> None:
        raise ValueError("broken")

    ref = stage.spawn(name="child", supervisor=boss)
    ref.tell(explode)
    ref.tell("one")
    future = ref.ask("two", block=False)
    ref.tell("three")
    stage.until(lambda: stage.failures)
    assert stage.failures[0].message is explode
    assert stage.failures[0].unhandled == ["one", "three"]
    assert future.answered
    assert stage.lost == []
    ref.tell("four")
    assert stage.lost == [("child", "four")]


def test_a_timer_that_fails_names_its_message(stage: Any, boss: Any) -> None:
    stage.spawn(fragile("timer", ValueError()), supervisor=boss)
    stage.until(lambda: stage.failures)
    assert stage.failures[0].message == "timer"


def test_an_actor_that_failed_is_told_so_and_not_asked_to_stop(stage: Any, boss: Any) -> None:
    error = ValueError("broken")
    stage.spawn(fragile("on_start", error), supervisor=boss)
    stage.until(lambda: stage.failures)
    assert stage.log == [("on_failure", error)]


def test_an_actor_that_was_never_built_is_told_nothing(stage: Any, boss: Any) -> None:
    stage.spawn(fragile("constructor", ValueError()), supervisor=boss)
    stage.until(lambda: stage.failures)
    assert stage.log == []


def test_a_failing_on_failure_hides_nothing(stage: Any, boss: Any, puppet_class: Any) -> None:
    class Worse(puppet_class):  # type: ignore[misc]
        def on_failure(self, *exc_info: Any) -> None:
            raise SystemExit("worse")

    def explode(_actor: Any) -> None:
        raise ValueError("broken")

    stage.spawn(Worse, name="child", supervisor=boss).tell(explode)
    stage.until(lambda: stage.failures)
    assert isinstance(stage.failures[0].error, ValueError)
    assert "then on_failure of child raised SystemExit('worse')" in stage.failures[0].traceback


@pytest.mark.parametrize("where", WHERE)
def test_without_a_supervisor_it_is_a_crash_that_is_reported(stage: Any, where: str) -> None:
    error = SystemExit("broken")
    ref = stage.spawn(fragile(where, error), name="orphan")
    ref.tell("on_receive")
    ref.tell("left over")
    stage.until(lambda: stage.crashes)
    name, reported, text = stage.crashes[0]
    assert (name, reported) == ("orphan", error)
    assert "SystemExit: broken" in text
    if where in ("constructor", "on_start", "on_receive"):
        assert ("orphan", "left over") in stage.lost
    assert stage.spawn(name="next").ask(lambda actor: actor.name, timeout=HANG_SECONDS) == "next"


def test_a_failure_whose_supervisor_is_gone_is_a_crash_that_is_reported(stage: Any, boss: Any) -> None:
    ref = stage.spawn(fragile("on_receive", ValueError()), name="child", supervisor=boss)
    stage.open()
    boss.stop(timeout=HANG_SECONDS)
    ref.tell("on_receive")
    stage.until(lambda: stage.crashes)
    assert stage.crashes[0][0] == "child"


def test_a_failure_that_the_supervisor_does_not_come_to_read_is_reported(stage: Any, boss: Any) -> None:
    error = ValueError("broken")

    def leave_with_mail(actor: Any) -> None:
        child.tell("on_receive")
        child.tell("left over")
        actor.stage.note("told")

    child = stage.spawn(fragile("on_receive", error), name="child", supervisor=boss)
    # In its one turn the boss tells the child, and after the child's turn it stops before the failure in its mailbox.
    boss.tell(leave_with_mail)
    for number in range(63):
        boss.tell(number)
    boss.tell(lambda actor: actor.stop())
    stage.until(lambda: stage.crashes)
    assert stage.failures == []
    assert stage.crashes[0][:2] == ("child", error)
    assert ("child", "left over") in stage.lost


def test_a_failing_supervisor_hands_its_childrens_failures_up(stage: Any, boss: Any) -> None:
    def explode(_actor: Any) -> None:
        raise ValueError("broken")

    middle = stage.spawn(name="middle", supervisor=boss)
    child = stage.spawn(name="child", supervisor=middle)
    # The child fails in its first turn, which is before the middle's second one.
    child.tell(explode)
    for _ in range(64):
        middle.tell("filler")
    middle.tell(explode)
    stage.until(lambda: stage.failures)
    assert stage.failures[0].name == "middle"
    assert [failure.name for failure in stage.failures[0].unhandled] == ["child"]


def test_virtual_time_raises_what_nobody_supervises() -> None:
    scheduler = VirtualScheduler()
    ref = scheduler.spawn(fragile("on_receive", SystemExit("broken")), None, name="orphan")
    scheduler.run_until_idle()
    ref.tell("on_receive")
    with pytest.raises(ActorCrashed, match=r"orphan failed and nobody supervises it: SystemExit\('broken'\)"):
        scheduler.run_until_idle()
    scheduler.run_until_idle()


@pytest.mark.threads
def test_a_loop_that_breaks_says_so_and_leaves_nobody_waiting() -> None:
    reports: list[tuple[str, BaseException]] = []

    def on_crash(name: str, error: BaseException, _text: str) -> None:
        reports.append((name, error))
        if name != "scheduler":
            raise LookupError("the crash handler is broken")

    scheduler = ThreadScheduler(SystemClock(), on_crash=on_crash)
    waiting = scheduler.spawn(fragile("", ValueError()), None, name="waiting")
    orphan = scheduler.spawn(fragile("constructor", ValueError("first")), None, name="orphan")
    future = orphan.ask("anyone?", block=False)
    left = [waiting.ask("nothing", block=False) for _ in range(200)][-1]
    scheduler.start()
    for reply in (future, left):
        with pytest.raises(pykka.ActorDeadError):
            reply.get(timeout=HANG_SECONDS)
    assert scheduler.stop(HANG_SECONDS)
    assert [name for name, _ in reports] == ["orphan", "scheduler"]
    assert isinstance(reports[1][1], LookupError)
    assert scheduler.living == []


@pytest.mark.threads
def test_a_crash_nobody_listens_to_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = ThreadScheduler(SystemClock())
    ref = scheduler.spawn(fragile("constructor", ValueError("broken")), None, name="orphan")
    future = ref.ask("anyone?", block=False)
    scheduler.start()
    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=HANG_SECONDS)
    assert scheduler.stop(HANG_SECONDS)
    assert "orphan failed and has no supervisor: ValueError('broken')" in caplog.text
    assert "in break_in" in caplog.text
