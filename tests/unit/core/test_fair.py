"""The queue that is fair to its keys, and the ramp."""

from __future__ import annotations

import pytest

from stepwell.core.fair import FairQueue
from stepwell.core.ramp import Ramp


def drained(queue: FairQueue[str]) -> list[str]:
    found = []
    while (item := queue.pop()) is not None:
        found.append(item)
    return found


def filled(*items: str) -> FairQueue[str]:
    """Items whose key is their first letter."""
    queue: FairQueue[str] = FairQueue()
    for item in items:
        queue.push(item[0], item)
    return queue


def test_keys_take_turns_and_each_keeps_its_order() -> None:
    assert drained(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_key_that_comes_late_waits_for_one_item_of_each_other_key() -> None:
    queue = filled(*[f"a{n}" for n in range(1000)])
    assert queue.pop() == "a0"
    queue.push("b", "b1")
    assert [queue.pop(), queue.pop(), queue.pop()] == ["a1", "b1", "a2"]


def test_a_key_that_may_not_go_on_holds_nobody_up_and_is_asked_again_only_when_unblocked() -> None:
    queue = filled("a1", "b1", "b2")
    asked: list[str] = []

    def not_a(key: str) -> bool:
        asked.append(key)
        return key != "a"

    assert [queue.pop(not_a) for _ in range(3)] == ["b1", "b2", None]
    assert asked.count("a") == 1
    assert queue.pop() is None, "blocked until it is told otherwise"
    queue.push("a", "a2")
    assert queue.pop() is None
    queue.unblock("a")
    queue.unblock("nobody")
    assert drained(queue) == ["a1", "a2"]


def test_what_is_not_wanted_any_more_goes_and_the_rest_keeps_its_turn_and_its_blocks() -> None:
    queue = filled("a1", "b1", "b2", "c1", "d1")
    assert queue.pop(lambda key: key != "a") == "b1"
    queue.keep(lambda item: item not in ("c1", "b2"))
    assert list(queue) == ["a1", "d1"]
    assert len(queue) == 2
    assert drained(queue) == ["d1"]
    queue.unblock("a")
    assert drained(queue) == ["a1"]


def test_a_queue_knows_its_length() -> None:
    queue = filled("a1", "b1")
    assert len(queue) == 2
    queue.pop()
    assert len(queue) == 1
    drained(queue)
    assert not queue


def admitted(ramp: Ramp, now: float) -> int:
    count = 0
    while ramp.take(now):
        count += 1
    return count


def test_a_crowd_comes_in_ever_faster() -> None:
    ramp = Ramp(burst=100, doubling=1.0, rest=10.0)
    assert admitted(ramp, 50.0) == 100
    assert admitted(ramp, 50.5) == 41
    assert admitted(ramp, 51.0) == 59
    assert admitted(ramp, 53.0) == 600


@pytest.mark.parametrize("already", [1, 5, 100])
def test_the_next_one_may_come_exactly_when_the_ramp_says(already: int) -> None:
    ramp = Ramp(burst=1, doubling=0.7, rest=100.0)
    now = 3.0
    for _ in range(already):
        while not ramp.take(now):
            assert ramp.next_at > now
            now = ramp.next_at
    assert not ramp.take(now)
    at = ramp.next_at
    assert not ramp.take(at - 0.001)
    assert ramp.take(at)


def test_a_new_crowd_starts_slowly_again() -> None:
    ramp = Ramp(burst=10, doubling=1.0, rest=10.0)
    admitted(ramp, 0.0)
    assert admitted(ramp, 9.0) > 1000
    assert admitted(ramp, 19.5) == 10


def test_a_crowd_that_takes_very_long_is_no_trouble() -> None:
    ramp = Ramp(burst=1, doubling=0.001, rest=1e9)
    assert ramp.take(0.0)
    assert ramp.take(1e6)
