"""Who is told which events."""

from __future__ import annotations

import pytest

from stepwell.actors.bus import Bus, Subscriber
from stepwell.core.events import Event, ExecutionBegan, ResultDropped

BEGAN = ExecutionBegan("order-7", "checkout", 3, 1_000)
DROPPED = ResultDropped("order-7", "checkout", "charge", 1, 1_000)


class Picky:
    """Hears of executions that begin, and of nothing else."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.asked: list[type[Event]] = []

    def handler(self, kind: type[Event]) -> Subscriber | None:
        self.asked.append(kind)
        return self.heard.append if kind is ExecutionBegan else None

    def __call__(self, event: Event) -> None:
        raise AssertionError("it said what is to be called")


def test_a_choosy_subscriber_is_asked_once_a_kind_and_hears_what_it_wants_beside_those_that_hear_all() -> None:
    picky, all_of_it = Picky(), list[Event]()
    bus = Bus((picky, all_of_it.append))
    bus.publish(BEGAN, DROPPED)
    bus.publish(DROPPED, BEGAN)
    assert picky.heard == [BEGAN, BEGAN]
    assert picky.asked == [ExecutionBegan, ResultDropped]
    assert all_of_it == [BEGAN, DROPPED, DROPPED, BEGAN]


def test_who_follows_is_told_first_so_that_others_can_ask_it() -> None:
    told: list[str] = []
    bus = Bus((lambda _: told.append("subscriber"),), lambda _, about: told.append(f"follower of {about}"))
    bus.publish(BEGAN)
    bus.publish(BEGAN, about="order-7")  # type: ignore[arg-type]
    assert told == ["subscriber", "follower of order-7", "subscriber"]


def test_who_subscribes_later_hears_of_kinds_that_were_told_before() -> None:
    bus = Bus()
    bus.publish(BEGAN)
    later: list[Event] = []
    bus.subscribe(later.append)
    bus.publish(BEGAN)
    assert later == [BEGAN]


def test_a_subscriber_that_fails_on_one_kind_is_left_out_of_all(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Picky):
        def handler(self, kind: type[Event]) -> Subscriber | None:
            return self.fail if kind is ExecutionBegan else self.heard.append

        def fail(self, event: Event) -> None:
            raise RuntimeError("no room")

    fails, steady = Fails(), list[Event]()
    bus = Bus((fails, steady.append))
    bus.publish(DROPPED, BEGAN, DROPPED)
    assert fails.heard == [DROPPED]
    assert steady == [DROPPED, BEGAN, DROPPED]
    assert "failed and gets no more events" in caplog.text
