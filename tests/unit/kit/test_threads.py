"""What only real threads can break: lost messages, lost wake-ups, hung askers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from stepwell.actors.kit import scheduler_thread
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.scheduler import ThreadScheduler

pytestmark = pytest.mark.threads

HANG_SECONDS = 50.0


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in that many threads at once; an error in one of them fails the test."""
    gate = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            gate.wait(HANG_SECONDS)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    assert errors == []


@pytest.fixture(autouse=True)
def _threads_change_often() -> Any:
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_all_messages_of_four_threads_arrive_each_in_its_order(thread_stage: Any) -> None:
    each = 2500
    got: list[tuple[int, int]] = []

    class Sink(PooledActor):
        def __init__(self, _stage: Any) -> None:
            pass

        def on_receive(self, message: Any) -> None:
            got.append(message)
            if len(got) == 4 * each:
                thread_stage.note("all")

    ref = thread_stage.spawn(Sink)
    thread_stage.open()
    in_threads(4, lambda sender: [ref.tell((sender, number)) for number in range(each)] and None)
    thread_stage.until(lambda: thread_stage.log)
    for sender in range(4):
        assert [number for who, number in got if who == sender] == list(range(each))


def test_single_messages_with_pauses_between_them_are_never_slept_through(thread_stage: Any) -> None:
    # Each ask finds the actor just going idle: the moment where a wake-up can be lost.
    refs = [thread_stage.spawn(name=f"a{number}") for number in range(2)]
    thread_stage.open()

    def ask_in_turn(number: int) -> None:
        for _ in range(500):
            refs[number % 2].ask(lambda _actor: None, timeout=HANG_SECONDS)

    in_threads(4, ask_in_turn)


def test_every_ask_is_answered_while_the_actor_stops(thread_stage: Any) -> None:
    thread_stage.open()
    answers: list[object] = []

    def ask_until_dead(ref: Any) -> None:
        while True:
            try:
                answers.append(ref.ask(lambda _actor: "alive", timeout=HANG_SECONDS))
            except pykka.ActorDeadError:
                return

    for number in range(100):
        ref = thread_stage.spawn(name=f"short-lived {number}")
        stopper = threading.Thread(target=lambda ref=ref: ref.tell(lambda actor: actor.stop()), daemon=True)
        in_threads(3, lambda who, ref=ref, stopper=stopper: ask_until_dead(ref) if who else stopper.start())
        stopper.join(HANG_SECONDS)
    assert set(answers) <= {"alive"}


def test_every_told_message_is_handled_or_counted_while_the_actor_stops(thread_stage: Any) -> None:
    thread_stage.open()
    sent = 0
    handled: list[object] = []
    for number in range(50):
        ref = thread_stage.spawn(name=f"short-lived {number}")

        def end(actor: Any) -> None:
            handled.append(actor)
            actor.stop()

        def tell(who: int, ref: Any = ref) -> None:
            for turn in range(20):
                ref.tell(handled.append if (who, turn) != (0, 10) else end)

        in_threads(3, tell)
        sent += 3 * 20
    thread_stage.stop()
    assert len(handled) + thread_stage.scheduler.undelivered == sent
    assert len(thread_stage.lost) == thread_stage.scheduler.undelivered


def test_actors_spawned_while_the_scheduler_stops_are_closed_or_refused() -> None:
    for _ in range(30):
        scheduler = ThreadScheduler(SystemClock(), on_crash=lambda *_: None)
        scheduler.start()
        pending: list[Any] = []

        def spawn_until_refused(who: int, scheduler: Any = scheduler, pending: Any = pending) -> None:
            if who == 0:
                assert scheduler.stop(HANG_SECONDS)
                return
            for number in range(100_000):
                try:
                    ref = scheduler.spawn(PooledActor, name=f"late {who} {number}")
                except RuntimeError:
                    return
                pending.append(ref.stop(block=False))

        in_threads(3, spawn_until_refused)
        for reply in pending:
            assert reply.get(timeout=HANG_SECONDS) in (True, False)
        assert scheduler.living == []


def test_a_watchdog_sees_who_is_at_work_and_since_when(thread_stage: Any) -> None:
    scheduler = thread_stage.scheduler
    entered, leave = threading.Event(), threading.Event()
    idle = threading.Event()

    def hog(_actor: Any) -> None:
        entered.set()
        leave.wait(HANG_SECONDS)

    ref = thread_stage.spawn(name="hog")
    before = scheduler.clock.monotonic()
    ref.tell(hog)
    thread_stage.open()
    assert entered.wait(HANG_SECONDS)
    name, since = scheduler.current
    assert name == "hog"
    assert before <= since <= scheduler.clock.monotonic()
    leave.set()

    # The thread says that nobody is at work before it waits for more.
    wait = scheduler._runnable.get

    class Watched:
        put, empty = scheduler._runnable.put, scheduler._runnable.empty

        def get(self, *args: Any, **options: Any) -> Any:
            if scheduler.current is None:
                idle.set()
            return wait(*args, **options)

    scheduler._runnable = Watched()
    thread_stage.settle(ref)
    assert idle.wait(HANG_SECONDS)
    thread_stage.stop()
    assert scheduler.current is None


def test_a_hung_actor_does_not_hang_who_stops_the_scheduler(thread_stage: Any) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hog(_actor: Any) -> None:
        entered.set()
        leave.wait(HANG_SECONDS)

    thread_stage.spawn().tell(hog)
    thread_stage.open()
    assert entered.wait(HANG_SECONDS)
    assert thread_stage.scheduler.stop(timeout=0.01) is False
    assert thread_stage.scheduler.is_alive
    leave.set()
    assert thread_stage.scheduler.stop(HANG_SECONDS) is True
    assert not thread_stage.scheduler.is_alive


def test_an_idle_scheduler_keeps_no_stopped_actor_in_memory(thread_stage: Any) -> None:
    gone = threading.Event()

    def watch(actor: Any) -> None:
        weakref.finalize(actor, gone.set)
        actor.stop()

    thread_stage.spawn(name="last").tell(watch)
    thread_stage.open()
    assert gone.wait(HANG_SECONDS)


def test_a_scheduler_that_was_never_started_still_answers_when_stopped() -> None:
    scheduler = ThreadScheduler(SystemClock())
    future = scheduler.spawn(PooledActor, name="never").ask("anyone?", block=False)
    assert scheduler.stop(HANG_SECONDS) is True
    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=HANG_SECONDS)


def test_ten_thousand_actors_share_one_thread(thread_stage: Any) -> None:
    thread_stage.open()
    before = set(threading.enumerate())
    refs = [thread_stage.spawn(name=f"a{number}") for number in range(10_000)]
    for ref in refs:
        ref.tell(lambda actor: actor.stage.note("hello") if actor.name in ("a0", "a9999") else None)
    thread_stage.until(lambda: len(thread_stage.log) == 2)
    assert set(threading.enumerate()) <= before


def test_a_timer_that_fell_due_while_the_host_was_suspended_fires_without_any_mail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_thread, "WAIT_SECONDS_MAX", 0.01)
    suspended = [0.0]
    host = SystemClock()
    clock = SystemClock(lambda: host.monotonic() + suspended[0])
    fired, armed = threading.Event(), threading.Event()

    class Sleeper(PooledActor):
        def on_start(self) -> None:
            self.timers.start("wake", 3600, "wake")
            armed.set()

        def on_receive(self, message: object) -> None:
            fired.set()

    scheduler = ThreadScheduler(clock)
    scheduler.start()
    scheduler.spawn(Sleeper, name="sleeper")
    assert armed.wait(HANG_SECONDS)
    suspended[0] = 3600.0
    assert fired.wait(HANG_SECONDS)
    assert scheduler.stop(HANG_SECONDS)
