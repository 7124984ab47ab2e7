"""A thread of its own: rounds until stopped, and no silent death."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from stepwell.actors.kit.service import LoopThread

pytestmark = pytest.mark.threads

HANG_SECONDS = 50.0


class Rounds:
    """Work for a LoopThread: each round waits for one item and does it."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.crashes: queue.SimpleQueue[tuple[str, BaseException, str]] = queue.SimpleQueue()
        self.begun = threading.Semaphore(0)
        self.thread = LoopThread("reader", self.once, lambda *crash: self.crashes.put(crash), self.wake)

    def once(self) -> None:
        self.begun.release()
        item = self.items.get()
        if isinstance(item, BaseException):
            raise item
        self.done.put(item() if callable(item) else item)

    def wake(self) -> None:
        self.items.put("woken")


def test_rounds_follow_each_other_until_it_is_stopped() -> None:
    rounds = Rounds()
    rounds.thread.start()
    rounds.items.put("one")
    rounds.items.put("two")
    assert [rounds.done.get(timeout=HANG_SECONDS) for _ in range(2)] == ["one", "two"]
    for _ in range(3):
        assert rounds.begun.acquire(timeout=HANG_SECONDS), "the third round waits, or is about to"
    assert rounds.thread.is_alive
    assert rounds.thread.stop(HANG_SECONDS) is True
    assert not rounds.thread.is_alive
    assert rounds.done.get(timeout=HANG_SECONDS) == "woken", "the waiting round was woken and ended in good order"
    assert rounds.done.empty()
    assert rounds.crashes.empty()


@pytest.mark.parametrize("error_class", [ValueError, SystemExit, KeyboardInterrupt])
def test_whatever_a_round_raises_ends_the_loop_and_is_reported(error_class: Any) -> None:
    rounds = Rounds()
    rounds.thread.start()
    error = error_class("broken")
    rounds.items.put(error)
    name, reported, text = rounds.crashes.get(timeout=HANG_SECONDS)
    assert (name, reported) == ("reader", error)
    assert f"{error_class.__name__}: broken" in text
    assert "in once" in text
    assert rounds.thread.stop(HANG_SECONDS) is True
    assert rounds.done.empty()


def test_stop_says_when_the_round_does_not_end_in_time() -> None:
    rounds = Rounds()
    entered, leave = threading.Event(), threading.Event()

    def long() -> bool:
        entered.set()
        return leave.wait(HANG_SECONDS)

    rounds.thread.start()
    rounds.items.put(long)
    assert entered.wait(HANG_SECONDS)
    assert rounds.thread.stop(timeout=0.01) is False
    assert rounds.thread.stopping
    leave.set()
    assert rounds.thread.stop(HANG_SECONDS) is True


def test_a_round_may_stop_its_own_loop() -> None:
    rounds = Rounds()
    rounds.thread.start()
    rounds.items.put(lambda: rounds.thread.stop(HANG_SECONDS))
    assert rounds.done.get(timeout=HANG_SECONDS) is False, "it can't wait for itself"
    assert rounds.thread.stop(HANG_SECONDS) is True


def test_a_loop_that_was_never_started_is_stopped_already() -> None:
    rounds = Rounds()
    assert rounds.thread.stop(HANG_SECONDS) is True
    assert rounds.items.empty(), "nobody was woken"


def test_it_does_not_hold_up_the_end_of_the_process() -> None:
    rounds, before = Rounds(), set(threading.enumerate())
    rounds.thread.start()
    (thread,) = [thread for thread in set(threading.enumerate()) - before if thread.name == "reader"]
    assert thread.daemon
    assert rounds.thread.stop(HANG_SECONDS)
