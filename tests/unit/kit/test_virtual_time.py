"""The deterministic scheduler: exact instants, the same trace for the same seed, no endless loop."""

from __future__ import annotations

import random
from typing import Any

import pykka
import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.reply import BlockingCallRefused
from stepwell.actors.kit.scheduler import VirtualScheduler


class Gossip(PooledActor):
    """Passes each message on to two others, chosen by its own seeded chance, and writes down who got it."""

    def __init__(self, number: int, trace: list[tuple[float, int, int]]) -> None:
        self.number = number
        self.trace = trace
        self.others: list[Any] = []
        self.chance = random.Random(number)

    def on_receive(self, message: Any) -> None:
        if isinstance(message, list):
            self.others = message
            return
        self.trace.append((self.scheduler.clock.monotonic(), self.number, message))
        if message:
            self.chance.choice(self.others).tell(message - 1)
            self.timers.start(f"echo {message}", self.chance.choice([0.1, 0.2]), message - 1)


def trace_of(seed: int | None) -> list[tuple[float, int, int]]:
    trace: list[tuple[float, int, int]] = []
    scheduler = VirtualScheduler(seed=seed)
    refs: list[Any] = [scheduler.spawn(Gossip, number, trace, name=f"gossip {number}") for number in range(5)]
    for ref in refs:
        ref.tell(refs)
    scheduler.run_until_idle()
    for ref in refs:
        ref.tell(5)
    scheduler.advance(60.0)
    return trace


@pytest.mark.parametrize("seed", [None, 0, 1, 12345])
def test_the_same_seed_gives_the_same_trace(seed: int | None) -> None:
    first = trace_of(seed)
    assert len(first) > 100
    assert trace_of(seed) == first


def test_seeds_try_different_orders() -> None:
    assert len({tuple(trace_of(seed)) for seed in [None, *range(10)]}) == 11


def test_a_seed_keeps_each_senders_order() -> None:
    got: list[int] = []

    class Sink(PooledActor):
        def on_receive(self, message: int) -> None:
            got.append(message)

    scheduler = VirtualScheduler(seed=7)
    others = [scheduler.spawn(Sink, name=f"other {number}") for number in range(3)]
    for number in range(100):
        others[number % 3].tell(-1)
    ref = scheduler.spawn(Sink, name="sink")
    for number in range(100):
        ref.tell(number)
    scheduler.run_until_idle()
    assert [number for number in got if number >= 0] == list(range(100))


def test_a_seed_interleaves_single_messages() -> None:
    orders = set()
    for seed in range(40):
        got: list[str] = []

        class Sink(PooledActor):
            def on_receive(self, message: str, got: list[str] = got) -> None:
                got.append(message)

        scheduler = VirtualScheduler(seed=seed)
        for name in "ab":
            ref = scheduler.spawn(Sink, name=name)
            ref.tell(name + "1")
            ref.tell(name + "2")
        scheduler.run_until_idle()
        orders.add(" ".join(got))
    assert len(orders) == 6, "every merge of two pairs"


def test_no_time_passes_until_it_is_told_to(virtual_stage: Any) -> None:
    scheduler = virtual_stage.scheduler
    virtual_stage.spawn().tell(lambda actor: actor.timers.start("nap", 3600.0, "awake"))
    scheduler.run_until_idle()
    assert scheduler.clock.monotonic() == 0.0
    assert scheduler.next_due() == 3600.0
    scheduler.advance(3599.9)
    assert virtual_stage.log == []
    scheduler.advance(0.1)
    assert virtual_stage.log == [("puppet", "awake")]
    assert scheduler.next_due() is None


def test_each_timer_sees_its_own_instant_and_ties_fire_in_start_order(virtual_stage: Any) -> None:
    clock = virtual_stage.scheduler.clock

    def arm(actor: Any) -> None:
        for key, delay in [("c", 2.0), ("a", 1.0), ("b", 1.0), ("d", 0.5)]:
            actor.timers.start(key, delay, lambda actor, key=key: actor.stage.note(key, clock.monotonic()))

    virtual_stage.spawn().tell(arm)
    virtual_stage.scheduler.advance(10.0)
    assert virtual_stage.log == [("d", 0.5), ("a", 1.0), ("b", 1.0), ("c", 2.0)]
    assert clock.monotonic() == 10.0


def test_actors_run_until_idle_at_each_instant(virtual_stage: Any) -> None:
    clock = virtual_stage.scheduler.clock
    other = virtual_stage.spawn(name="other")

    def relay(_actor: Any) -> None:
        other.tell(lambda actor: actor.stage.note("relayed at", clock.monotonic()))

    def arm(actor: Any) -> None:
        actor.timers.start("one", 1.0, relay)
        actor.timers.start("two", 1.5, relay)

    virtual_stage.spawn().tell(arm)
    virtual_stage.scheduler.advance(10.0)
    assert virtual_stage.log == [("relayed at", 1.0), ("relayed at", 1.5)]


def test_run_until_jumps_to_the_instant_and_no_further(virtual_stage: Any) -> None:
    def tick(actor: Any) -> None:
        actor.stage.note("tick")
        actor.timers.start("tick", 86400.0, tick)

    virtual_stage.spawn().tell(tick)
    virtual_stage.scheduler.run_until(lambda: len(virtual_stage.log) == 4, limit_seconds=7 * 86400.0)
    assert virtual_stage.scheduler.clock.monotonic() == 3 * 86400.0


def test_run_until_gives_up_at_its_limit_and_says_what_is_next(virtual_stage: Any) -> None:
    virtual_stage.spawn().tell(lambda actor: actor.timers.start("nap", 60.0, "awake"))
    with pytest.raises(TimeoutError, match=r"not happen within 30.0 s of virtual time; the next timer is due in 60 s"):
        virtual_stage.scheduler.run_until(lambda: virtual_stage.log, limit_seconds=30.0)


def test_run_until_gives_up_at_once_when_nothing_is_left_to_run(virtual_stage: Any) -> None:
    virtual_stage.spawn().tell("something else")
    with pytest.raises(TimeoutError, match="nothing is left to run"):
        virtual_stage.scheduler.run_until(lambda: False, limit_seconds=1e9)


def test_step_runs_one_turn(virtual_stage: Any) -> None:
    scheduler = virtual_stage.scheduler
    one, two = virtual_stage.spawn(name="one"), virtual_stage.spawn(name="two")
    one.tell("hello")
    two.tell("hello")
    assert scheduler.step() == 1
    assert virtual_stage.log == [("one", "hello")]
    assert scheduler.step() == 1
    assert virtual_stage.log == [("one", "hello"), ("two", "hello")]
    assert scheduler.step() == 0


def ping_pong(virtual_stage: Any) -> None:
    one, two = virtual_stage.spawn(name="ping"), virtual_stage.spawn(name="pong")

    def to_two(_actor: Any) -> None:
        two.tell(to_one)

    def to_one(_actor: Any) -> None:
        one.tell(to_two)

    one.tell(to_two)


def zero_delay_timer(virtual_stage: Any) -> None:
    def again(actor: Any) -> None:
        actor.timers.start("again", 0.0, again)

    virtual_stage.spawn(name="ping").tell(again)


@pytest.mark.parametrize("livelock", [ping_pong, zero_delay_timer])
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda scheduler: scheduler.run_until_idle(max_messages=1000), id="run_until_idle"),
        pytest.param(lambda scheduler: scheduler.advance(1.0, max_messages=1000), id="advance"),
        pytest.param(lambda scheduler: scheduler.run_until(lambda: False, 1.0, max_messages=1000), id="run_until"),
    ],
)
def test_actors_that_never_come_to_rest_are_named(virtual_stage: Any, livelock: Any, run: Any) -> None:
    livelock(virtual_stage)
    with pytest.raises(RuntimeError, match=r"the limit of .* messages is used up.*At work: ping"):
        run(virtual_stage.scheduler)


def test_a_timer_storm_uses_up_the_limit_of_the_whole_call(virtual_stage: Any) -> None:
    def tick(actor: Any) -> None:
        actor.timers.start("tick", 0.001, tick)

    virtual_stage.spawn().tell(tick)
    with pytest.raises(RuntimeError, match="used up"):
        virtual_stage.scheduler.advance(3600.0, max_messages=1000)


def test_an_ask_from_the_test_runs_the_actors_and_takes_no_time(virtual_stage: Any) -> None:
    other = virtual_stage.spawn(name="other")
    ref = virtual_stage.spawn()
    assert ref.ask(lambda actor: other.tell("hello")) is None
    assert virtual_stage.log == [("other", "hello")]
    assert virtual_stage.scheduler.clock.monotonic() == 0.0


def test_waiting_for_an_answer_that_needs_time_says_so(virtual_stage: Any) -> None:
    from stepwell.actors.kit.reply import Reply

    with pytest.raises(pykka.Timeout, match="virtual time passes only by advance"):
        Reply(virtual_stage.scheduler).get(timeout=3600.0)


def test_an_actor_can_not_drive_the_scheduler_that_runs_it(virtual_stage: Any) -> None:
    scheduler = virtual_stage.scheduler

    def misbehave(_actor: Any) -> None:
        for drive in (scheduler.step, scheduler.run_until_idle, lambda: scheduler.advance(1.0), scheduler.stop):
            with pytest.raises(BlockingCallRefused, match="called by puppet"):
                drive()

    ref = virtual_stage.spawn()
    ref.ask(misbehave)
    assert ref.is_alive()


def test_a_clock_of_ones_own_can_be_given() -> None:
    scheduler = VirtualScheduler(VirtualClock(start_ms=5))
    scheduler.advance(1.5)
    assert scheduler.clock.now_ms() == 1505
