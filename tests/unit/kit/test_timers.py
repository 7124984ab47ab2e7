"""Timers by key: replaced, cancelled, stale, and gone with their actor."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from stepwell.actors.kit.cell import NO_TIMERS
from stepwell.actors.kit.scheduler import VirtualScheduler

HANG_SECONDS = 50.0
SOON, LATER = 0.002, 0.004


def test_a_timer_sends_its_message_once(stage: Any) -> None:
    ref = stage.spawn()
    ref.tell(lambda actor: actor.timers.start("nap", SOON, "awake"))
    ref.tell(lambda actor: actor.timers.start("end", LATER, "end"))
    stage.until(lambda: ("puppet", "end") in stage.log)
    assert stage.log == [("puppet", "awake"), ("puppet", "end")]


def test_the_one_due_first_fires_first(stage: Any) -> None:
    def arm(actor: Any) -> None:
        # So much later that a thread which is held up between the two changes nothing.
        actor.timers.start("b", 50 * LATER, "second")
        actor.timers.start("a", SOON, "first")

    stage.spawn().tell(arm)
    stage.until(lambda: len(stage.log) == 2)
    assert [what for _, what in stage.log] == ["first", "second"]


def test_starting_a_key_again_replaces_its_timer(stage: Any) -> None:
    def arm(actor: Any) -> None:
        actor.timers.start("nap", SOON, "old")
        actor.timers.start("nap", LATER, "new")

    ref = stage.spawn()
    ref.tell(arm)
    stage.until(lambda: stage.log)
    assert stage.log == [("puppet", "new")]
    assert not ref.ask(lambda actor: actor.timers.active("nap"), timeout=HANG_SECONDS)


def test_a_cancelled_timer_does_nothing(stage: Any) -> None:
    def arm(actor: Any) -> None:
        actor.timers.start("nap", SOON, "never")
        actor.timers.start("end", LATER, "end")
        assert actor.timers.active("nap")
        assert actor.timers.cancel("nap") is True
        assert actor.timers.cancel("nap") is False
        assert not actor.timers.active("nap")

    stage.spawn().tell(arm)
    stage.until(lambda: stage.log)
    assert stage.log == [("puppet", "end")]
    assert stage.crashes == []


@pytest.mark.parametrize("how", ["cancel", "replace"])
def test_a_stale_timer_is_dropped_although_it_lies_in_the_mailbox(virtual_stage: Any, how: str) -> None:
    scheduler = virtual_stage.scheduler
    ref = virtual_stage.spawn()
    ref.tell(lambda actor: actor.timers.start("nap", 1.0, "stale"))
    virtual_stage.settle(ref)

    def too_late(actor: Any) -> None:
        assert actor.timers.active("nap"), "fired, but not handled"
        if how == "cancel":
            actor.timers.cancel("nap")
        else:
            actor.timers.start("nap", 5.0, "fresh")

    # In the mailbox first, so it is handled before the timer that fires in the same turn.
    ref.tell(too_late)
    scheduler.clock.advance(1.0)
    scheduler.run_until_idle()
    assert virtual_stage.log == []
    scheduler.advance(5.0)
    assert virtual_stage.log == ([("puppet", "fresh")] if how == "replace" else [])


def test_timers_of_two_actors_with_the_same_key_are_two(stage: Any) -> None:
    one, two = stage.spawn(name="one"), stage.spawn(name="two")
    one.tell(lambda actor: actor.timers.start("nap", SOON, "cancelled"))
    two.tell(lambda actor: actor.timers.start("nap", LATER, "awake"))
    one.tell(lambda actor: actor.timers.cancel("nap"))
    stage.until(lambda: stage.log)
    assert stage.log == [("two", "awake")]


def test_a_stopped_actors_timers_die(stage: Any) -> None:
    def arm_and_stop(actor: Any) -> None:
        actor.timers.start("nap", SOON, "never")
        actor.stop()

    stage.spawn(name="gone").tell(arm_and_stop)
    witness = stage.spawn(name="witness")
    witness.tell(lambda actor: actor.timers.start("end", LATER, "end"))
    stage.until(lambda: stage.log)
    assert stage.log == [("witness", "end")]
    assert stage.lost == []
    assert stage.scheduler.undelivered == 0


@pytest.mark.parametrize("fails", [False, True])
def test_the_timers_of_an_actor_that_is_gone_wake_nobody(virtual_stage: Any, fails: bool) -> None:
    def arm_and_go(actor: Any) -> None:
        actor.timers.start("nap", 1.0, "never")
        actor.stop()
        if fails:
            raise ValueError("broken")

    virtual_stage.spawn().tell(arm_and_go)
    virtual_stage.scheduler.run_until_idle()
    assert virtual_stage.scheduler.next_due() is None


def test_a_cancelled_timer_wakes_nobody(virtual_stage: Any) -> None:
    def arm(actor: Any) -> None:
        actor.timers.start("a", 1.0, "never")
        actor.timers.start("b", 2.0, "awake")
        actor.timers.cancel("a")

    virtual_stage.spawn().tell(arm)
    virtual_stage.scheduler.run_until_idle()
    assert virtual_stage.scheduler.next_due() == 2.0


def test_a_timer_in_the_mailbox_of_an_actor_that_stops_is_no_lost_message(virtual_stage: Any) -> None:
    ref = virtual_stage.spawn()
    ref.tell(lambda actor: actor.timers.start("nap", 1.0, "never"))
    virtual_stage.settle(ref)
    ref.tell(lambda actor: actor.stop())
    virtual_stage.scheduler.clock.advance(1.0)
    virtual_stage.scheduler.run_until_idle()
    assert virtual_stage.log == []
    assert virtual_stage.scheduler.undelivered == 0


def test_a_rebuilt_actor_is_not_woken_by_its_forerunners_timer(stage: Any, puppet_class: Any) -> None:
    def arm_and_fail(actor: Any) -> None:
        actor.timers.start("nap", SOON, "of the dead")
        raise ValueError("broken")

    class Rebuilder(puppet_class):  # type: ignore[misc]
        def on_receive(self, message: Any) -> None:
            new = self.scheduler.spawn(puppet_class, self.stage, name=message.name, supervisor=self.actor_ref)
            new.tell(lambda actor: actor.timers.start("nap", LATER, "of the living"))

    rebuilder = stage.spawn(Rebuilder, name="rebuilder")
    stage.spawn(name="child", supervisor=rebuilder).tell(arm_and_fail)
    stage.until(lambda: stage.log)
    assert stage.log == [("child", "of the living")]


def test_a_timer_started_by_an_actor_that_is_gone_does_nothing(virtual_stage: Any) -> None:
    kept: list[Any] = []
    ref = virtual_stage.spawn()
    ref.ask(kept.append)
    ref.stop()
    kept[0].timers.start("nap", 1.0, "never")
    assert virtual_stage.scheduler.next_due() is None


def test_a_handler_may_start_its_own_key_again(virtual_stage: Any) -> None:
    def tick(actor: Any) -> None:
        actor.stage.note(virtual_stage.scheduler.clock.monotonic())
        actor.timers.start("tick", 10.0, tick)

    virtual_stage.spawn().tell(tick)
    virtual_stage.scheduler.advance(35.0)
    assert virtual_stage.log == [(0.0,), (10.0,), (20.0,), (30.0,)]


@pytest.mark.parametrize("delay", [0.0, -5.0])
def test_a_delay_that_is_over_already_is_due_now(virtual_stage: Any, delay: float) -> None:
    ref = virtual_stage.spawn()
    ref.tell(lambda actor: actor.timers.start("now", delay, "awake"))
    virtual_stage.scheduler.run_until_idle()
    assert virtual_stage.log == [("puppet", "awake")]
    assert virtual_stage.scheduler.clock.monotonic() == 0.0


def test_delays_that_are_over_fire_in_the_order_they_were_started(virtual_stage: Any) -> None:
    def arm(actor: Any) -> None:
        for delay in (0.0, -5.0, -1.0, 0.0):
            actor.timers.start(str(delay) * len(actor.stage.log), delay, delay)
            actor.stage.note("armed")

    ref = virtual_stage.spawn()
    ref.tell(arm)
    virtual_stage.scheduler.run_until_idle()
    assert [what[1] for what in virtual_stage.log[4:]] == [0.0, -5.0, -1.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_started_and_cancelled_the_rest_fires_in_order(virtual_stage: Any, seed: int) -> None:
    chance = random.Random(seed)
    expected: dict[str, float] = {}

    def arm(actor: Any) -> None:
        for number in range(3000):
            key = f"timer {chance.randrange(500)}"
            if chance.random() < 0.5:
                actor.timers.cancel(key)
                expected.pop(key, None)
            else:
                expected[key] = chance.uniform(1.0, 100.0)
                actor.timers.start(key, expected[key], (key, number))

    virtual_stage.spawn().tell(arm)
    virtual_stage.scheduler.advance(1000.0)
    fired = [what[0] for _, what in virtual_stage.log]
    assert fired == sorted(expected, key=lambda key: expected[key])
    assert len(fired) > 100


@pytest.mark.parametrize("delay", [float("nan"), float("inf")])
def test_a_delay_without_an_end_is_refused(virtual_stage: Any, delay: float) -> None:
    def arm(actor: Any) -> None:
        actor.timers.start("nap", 1.0, "kept")
        with pytest.raises(ValueError, match="expected the delay of timer 'nap' in seconds, got"):
            actor.timers.start("nap", delay, "never")

    ref = virtual_stage.spawn()
    ref.tell(arm)
    virtual_stage.scheduler.advance(1.0)
    assert virtual_stage.log == [("puppet", "kept")], "and the timer that was there stays"


@pytest.mark.threads
def test_a_timer_a_thousand_years_ahead_is_just_a_timer(thread_stage: Any) -> None:
    ref = thread_stage.spawn()
    ref.tell(lambda actor: actor.timers.start("far", 1000 * 365 * 86400.0, "never"))
    ref.tell("still alive")
    thread_stage.settle(ref)
    ref.tell("and again")
    thread_stage.settle(ref)
    assert thread_stage.log == [("puppet", "still alive"), ("puppet", "and again")]
    assert thread_stage.crashes == []


@pytest.mark.threads
def test_a_timer_that_comes_nearer_wakes_the_thread_in_time(thread_stage: Any) -> None:
    ref = thread_stage.spawn()
    ref.tell(lambda actor: actor.timers.start("far", 3600.0, "never"))
    thread_stage.settle(ref)
    ref.tell(lambda actor: actor.timers.start("near", SOON, "awake"))
    thread_stage.until(lambda: thread_stage.log)
    assert thread_stage.log == [("puppet", "awake")]


@pytest.mark.threads
def test_a_timer_never_fires_early(thread_stage: Any) -> None:
    clock = thread_stage.scheduler.clock
    starts: list[float] = []

    def arm(actor: Any) -> None:
        starts.append(clock.monotonic())
        actor.timers.start("nap", 0.01, lambda actor: actor.stage.note(clock.monotonic()))

    thread_stage.spawn().tell(arm)
    thread_stage.until(lambda: thread_stage.log)
    assert thread_stage.log[0][0] - starts[0] >= 0.01


@pytest.mark.threads
def test_a_foreign_thread_can_not_start_an_actors_timer(thread_stage: Any) -> None:
    kept: list[Any] = []
    ref = thread_stage.spawn()
    thread_stage.open()
    ref.ask(kept.append, timeout=HANG_SECONDS)
    with pytest.raises(RuntimeError, match="timer 'nap' was started on a foreign thread: tell the actor"):
        kept[0].timers.start("nap", 1.0, "never")
    assert threading.get_ident() != thread_stage.scheduler.timer_heap.thread


def test_ten_thousand_cancelled_timers_do_not_stay_in_memory() -> None:
    scheduler = VirtualScheduler()

    def arm(actor: Any) -> None:
        for number in range(10_000):
            actor.timers.start(f"nap {number}", 86400.0, "never")
        actor.timers.start("kept", 10.0, lambda actor: None)
        for number in range(10_000):
            actor.timers.cancel(f"nap {number}")

    from stepwell.actors.kit.pooled import PooledActor

    class Caller(PooledActor):
        def on_receive(self, message: Any) -> None:
            message(self)

    scheduler.spawn(Caller, name="caller").tell(arm)
    scheduler.run_until_idle()
    assert len(scheduler.timer_heap) <= 200
    assert scheduler.next_due() == 10.0


def test_a_key_that_is_started_over_and_over_does_not_fill_the_heap(virtual_stage: Any) -> None:
    def arm(actor: Any) -> None:
        for number in range(10_000):
            actor.timers.start("nap", 86400.0 + number, "once")

    virtual_stage.spawn().tell(arm)
    virtual_stage.scheduler.run_until_idle()
    assert len(virtual_stage.scheduler.timer_heap) <= 200
    virtual_stage.scheduler.advance(2 * 86400.0)
    assert virtual_stage.log == [("puppet", "once")]


def test_an_actor_without_timers_pays_for_none(virtual_stage: Any) -> None:
    idle, napping = virtual_stage.spawn(), virtual_stage.spawn()
    napping.tell(lambda actor: actor.timers.start("nap", 60.0, "awake"))
    virtual_stage.settle(idle, napping)
    assert idle._cell.timers is NO_TIMERS
    assert list(napping._cell.timers) == ["nap"]
    assert not NO_TIMERS
