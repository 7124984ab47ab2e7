"""Mailboxes, turns, asking and stopping: the same on both schedulers."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import Any

import pykka
import pytest

from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.reply import BlockingCallRefused, Reply
from stepwell.actors.kit.scheduler import Scheduler
from stepwell.actors.kit.scheduler_base import TURN_MESSAGES_MAX

HANG_SECONDS = 50.0


def test_messages_of_one_sender_arrive_in_the_order_they_were_sent(stage: Any) -> None:
    ref = stage.spawn()
    for number in range(500):
        ref.tell(number)
    stage.settle(ref)
    assert [what for _, what in stage.log] == list(range(500))


def test_an_actor_knows_itself_already_in_its_constructor(stage: Any, puppet_class: Any) -> None:
    class Curious(puppet_class):  # type: ignore[misc]
        def __init__(self, stage: Any) -> None:
            super().__init__(stage)
            stage.note("init", self.name, self.scheduler, self.actor_ref)

        def on_start(self) -> None:
            self.stage.note("on_start")

    ref = stage.spawn(Curious, name="execution:abc")
    ref.tell("first")
    stage.settle(ref)
    assert stage.log == [
        ("init", "execution:abc", stage.scheduler, ref),
        ("on_start",),
        ("execution:abc", "first"),
    ]
    assert isinstance(stage.scheduler, Scheduler)
    assert isinstance(ref, pykka.ActorRef)


def test_all_of_an_actors_code_runs_on_one_thread(stage: Any, puppet_class: Any) -> None:
    class Located(puppet_class):  # type: ignore[misc]
        def __init__(self, stage: Any) -> None:
            super().__init__(stage)
            stage.note(threading.get_ident())

        def on_start(self) -> None:
            self.stage.note(threading.get_ident())

        def on_receive(self, message: object) -> None:
            self.stage.note(threading.get_ident())

        def on_stop(self) -> None:
            self.stage.note(threading.get_ident())

    ref = stage.spawn(Located)
    stage.open()
    ref.tell("anything")
    ref.stop(timeout=HANG_SECONDS)
    assert len(stage.log) == 4
    assert len(set(stage.log)) == 1


def test_a_backlog_waits_for_the_others_after_64_messages(stage: Any) -> None:
    greedy, other = stage.spawn(name="greedy"), stage.spawn(name="other")
    for number in range(200):
        greedy.tell(number)
    other.tell("hello")
    stage.settle(greedy, other)
    assert TURN_MESSAGES_MAX == 64
    assert stage.log.index(("other", "hello")) == 64
    assert len(stage.log) == 201


def test_stop_lets_the_current_message_end_and_no_other_begin(stage: Any, puppet_class: Any) -> None:
    class Mortal(puppet_class):  # type: ignore[misc]
        def on_stop(self) -> None:
            self.stage.note("on_stop")

    def stop_and_go_on(actor: Any) -> None:
        actor.stop()
        actor.stage.note("still in the message")

    ref = stage.spawn(Mortal, name="mortal")
    ref.tell(stop_and_go_on)
    ref.tell("too late")
    stage.until(lambda: stage.lost)
    assert stage.log == [("still in the message",), ("on_stop",)]
    assert stage.lost == [("mortal", "too late")]
    assert not ref.is_alive()
    assert "mortal" not in stage.scheduler.living


def test_telling_a_stopped_actor_raises_nothing_and_is_counted(stage: Any) -> None:
    ref = stage.spawn(name="gone")
    stage.open()
    ref.stop(timeout=HANG_SECONDS)
    ref.tell("one")
    ref.tell("two")
    assert stage.scheduler.undelivered == 2
    assert stage.lost == [("gone", "one"), ("gone", "two")]


def test_stop_from_outside_comes_after_what_was_told_before(stage: Any) -> None:
    ref = stage.spawn()
    stage.open()
    ref.tell("before")
    assert ref.stop(timeout=HANG_SECONDS) is True
    assert ref.stop(timeout=HANG_SECONDS) is False
    assert stage.log == [("puppet", "before")]


def test_a_request_to_stop_is_answered_when_on_stop_is_through(stage: Any, puppet_class: Any) -> None:
    answered: list[bool] = []

    class Mortal(puppet_class):  # type: ignore[misc]
        def on_stop(self) -> None:
            answered.append(future.answered)

    ref = stage.spawn(Mortal)
    future = ref.stop(block=False)
    stage.open()
    assert future.get(timeout=HANG_SECONDS) is True
    assert answered == [False]


def test_two_requests_to_stop_are_both_answered(stage: Any) -> None:
    ref = stage.spawn()
    first, second = ref.stop(block=False), ref.stop(block=False)
    stage.open()
    assert first.get(timeout=HANG_SECONDS) is True
    assert second.get(timeout=HANG_SECONDS) is True


def test_an_actor_may_stop_in_on_start(stage: Any, puppet_class: Any) -> None:
    class Brief(puppet_class):  # type: ignore[misc]
        def on_start(self) -> None:
            self.stop()

    ref = stage.spawn(Brief, name="brief")
    ref.tell("never handled")
    stage.until(lambda: stage.lost)
    assert not ref.is_alive()
    assert stage.log == []


def test_an_ask_gets_what_the_handler_returns(stage: Any) -> None:
    ref = stage.spawn(name="answers")
    stage.open()
    assert ref.ask(lambda actor: actor.name, timeout=HANG_SECONDS) == "answers"
    future = ref.ask(lambda actor: 42, block=False)
    assert isinstance(future, Reply)
    assert future.map(lambda value: value + 1).get(timeout=HANG_SECONDS) == 43


def test_an_ask_of_a_stopped_actor_is_answered(stage: Any) -> None:
    ref = stage.spawn(name="gone")
    stage.open()
    ref.stop(timeout=HANG_SECONDS)
    with pytest.raises(pykka.ActorDeadError, match="gone stopped before"):
        ref.ask("anyone?", timeout=HANG_SECONDS)


def test_an_ask_behind_a_stop_is_answered(stage: Any) -> None:
    ref = stage.spawn()
    ref.tell(lambda actor: actor.stop())
    future = ref.ask("anyone?", block=False)
    stage.open()
    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=HANG_SECONDS)
    assert stage.lost == [], "who asked knows it: it is not lost"


@pytest.mark.parametrize(
    "blocking",
    [
        pytest.param(lambda other, future: other.ask("now"), id="ask"),
        pytest.param(lambda other, future: other.ask("now", timeout=1.0), id="ask with timeout"),
        pytest.param(lambda other, future: other.stop(), id="stop"),
        pytest.param(lambda other, future: future.get(), id="get"),
        pytest.param(lambda other, future: future.map(str).get(timeout=1.0), id="get of a mapped future"),
    ],
)
def test_an_actor_that_would_block_the_scheduler_is_refused(stage: Any, blocking: Any) -> None:
    other = stage.spawn(name="other")

    def misbehave(actor: Any) -> str:
        future = other.ask("later", block=False)
        with pytest.raises(BlockingCallRefused, match=r"would block the thread that runs all actors.*called by rude"):
            blocking(other, future)
        return "still here"

    ref = stage.spawn(name="rude")
    stage.open()
    assert ref.ask(misbehave, timeout=HANG_SECONDS) == "still here"
    stage.settle(other)
    assert ("other", "now") not in stage.log, "what is refused is not sent"
    assert ("other", "later") in stage.log
    assert other.is_alive()


def test_even_an_answer_that_is_there_may_not_be_waited_for(stage: Any) -> None:
    # Or whether it works would depend on who was faster.
    ref = stage.spawn()
    stage.open()
    future = ref.ask(lambda _actor: "there", block=False)
    assert future.get(timeout=HANG_SECONDS) == "there"

    def misbehave(_actor: Any) -> None:
        with pytest.raises(BlockingCallRefused):
            future.get()

    ref.ask(misbehave, timeout=HANG_SECONDS)


def test_the_scheduler_can_not_be_stopped_from_within(stage: Any) -> None:
    def misbehave(actor: Any) -> None:
        with pytest.raises(BlockingCallRefused):
            stage.stop()

    stage.settle(ref := stage.spawn())
    ref.ask(misbehave, timeout=HANG_SECONDS)
    assert ref.is_alive()


def test_stopping_the_scheduler_stops_the_youngest_actor_first(stage: Any, puppet_class: Any) -> None:
    class Mortal(puppet_class):  # type: ignore[misc]
        def on_stop(self) -> None:
            self.stage.note("on_stop", self.name)

    refs = [stage.spawn(Mortal, name=name) for name in ("first", "second", "third")]
    stage.settle(*refs)
    stage.stop()
    assert stage.log == [("on_stop", "third"), ("on_stop", "second"), ("on_stop", "first")]
    refs[0].tell("too late")
    assert stage.lost == [("first", "too late")]
    with pytest.raises(pykka.ActorDeadError):
        refs[0].ask("anyone?", timeout=HANG_SECONDS)


def test_mail_that_is_left_when_the_scheduler_stops_is_counted(stage: Any) -> None:
    asked = []

    def fill_the_other(actor: Any) -> None:
        other.tell("left over")
        asked.append(other.ask("left over too", block=False))
        actor.stop()

    class Leaver(PooledActor):
        def __init__(self, _stage: Any) -> None:
            pass

        def on_stop(self) -> None:
            fill_the_other(self)

    other = stage.spawn(name="other")
    leaver = stage.spawn(Leaver, name="leaver")
    stage.settle(other)
    stage.until(leaver.is_alive)
    stage.stop()
    assert stage.lost == [("other", "left over")]
    with pytest.raises(pykka.ActorDeadError):
        asked[0].get(timeout=HANG_SECONDS)


def test_nothing_starts_on_a_scheduler_that_has_stopped(stage: Any) -> None:
    stage.open()
    stage.stop()
    with pytest.raises(RuntimeError, match="late can't be started: its scheduler has stopped"):
        stage.spawn(name="late")
    assert stage.scheduler.living == []


def test_stopping_the_scheduler_twice_is_fine(stage: Any) -> None:
    stage.settle(stage.spawn())
    stage.stop()
    stage.stop()
    assert stage.scheduler.living == []


def test_a_message_nobody_wrote_a_handler_for_fails_the_actor(stage: Any) -> None:
    class Deaf(PooledActor):
        def __init__(self, _stage: Any) -> None:
            pass

    stage.spawn(Deaf, name="deaf").tell("hello?")
    stage.until(lambda: stage.crashes)
    assert "Deaf (deaf) does not know what to do with 'hello?'" in str(stage.crashes[0][1])


def test_pykkas_own_ways_to_start_and_look_into_an_actor_are_refused(stage: Any, puppet_class: Any) -> None:
    with pytest.raises(TypeError, match=r"start Puppet with scheduler.spawn\(Puppet"):
        puppet_class.start(stage)
    with pytest.raises(TypeError, match="has no proxy"):
        stage.spawn().proxy()


def test_pykkas_global_registry_knows_no_pooled_actor(stage: Any) -> None:
    stage.settle(stage.spawn())
    assert pykka.ActorRegistry.get_all() == []


def test_an_idle_actor_costs_at_most_a_kilobyte(virtual_stage: Any) -> None:
    count = 2000
    names = [f"execution:{number}" for number in range(count)]
    virtual_stage.settle(virtual_stage.spawn())
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        refs = [virtual_stage.spawn(name=name) for name in names]
        virtual_stage.scheduler.run_until_idle()
        gc.collect()
        per_actor = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert len(virtual_stage.scheduler.living) == len(refs) + 1
    assert per_actor <= 1024


def test_a_stopped_actor_leaves_memory_although_its_address_is_kept(virtual_stage: Any) -> None:
    import weakref

    kept: list[Any] = []
    ref = virtual_stage.spawn()
    ref.ask(lambda actor: kept.append(weakref.ref(actor)))
    ref.stop()
    assert kept[0]() is None, "and without waiting for the garbage collector"


def test_a_message_that_comes_while_the_turn_ends_is_not_slept_through(virtual_stage: Any) -> None:
    ref = virtual_stage.spawn()
    virtual_stage.settle(ref)
    cell = ref._cell
    real = cell._idle

    class ToldJustBeforeRelease:
        """Another thread tells after the turn's last look at the queue, before the bit is given up."""

        def acquire(self, blocking: bool) -> bool:
            return bool(real.acquire(blocking))

        def release(self) -> None:
            cell._idle = real
            ref.tell("late")
            real.release()

    cell._idle = ToldJustBeforeRelease()
    ref.tell("early")
    virtual_stage.scheduler.run_until_idle()
    assert virtual_stage.log == [("puppet", "early"), ("puppet", "late")]


def test_an_ask_that_comes_while_the_actor_closes_is_answered(virtual_stage: Any) -> None:
    from queue import Empty

    ref = virtual_stage.spawn()
    virtual_stage.settle(ref)
    cell = ref._cell
    real = cell.queue
    late: list[Reply] = []

    class AskedJustAfterTheLastLook:
        """Another thread asks when the closing actor has found its mailbox empty."""

        put, empty = real.put, real.empty

        def get_nowait(self) -> object:
            try:
                return real.get_nowait()
            except Empty:
                cell.queue = real
                late.append(ref.ask("anyone?", block=False))
                raise

    cell.queue = AskedJustAfterTheLastLook()
    ref.tell(lambda actor: actor.stop())
    virtual_stage.scheduler.run_until_idle()
    assert late[0].answered
    with pytest.raises(pykka.ActorDeadError):
        late[0].get()
