"""Which attempts may begin when there are more than may run at once."""

from __future__ import annotations

from typing import Any

import pytest
from unit.actors.told import Box

from stepwell import step
from stepwell.actors.holdings import Holdings
from stepwell.actors.messages import BodyBegan, StepDone, StepHeld
from stepwell.actors.runner import StepOrder
from stepwell.actors.runner.attempts import Attempt, Attempts
from stepwell.actors.runner.gates import Gates
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall
from stepwell.store.leases import Grant


@step
async def plain() -> None: ...


@step(max_running=2)
async def narrow() -> None: ...


@step(max_running=2)
def narrow_sync() -> None: ...


@step(isolation="process")
async def apart() -> None: ...


class Stage:
    """Attempts whose bodies are what the test says; `going` are those that were handed to the runner, in order."""

    def __init__(self, bodies: int = 100, processes: int = 100) -> None:
        holdings = Holdings(lambda: 0.0)
        holdings.hold(Grant(0, 1, "lease", True, 0), 1e9)
        self.box = Box()
        self.going: list[str] = []
        self.taken: dict[str, Attempt] = {}
        self.refuse: set[str] = set()
        self.attempts = Attempts(holdings, self._submit, Gates(bodies, processes))

    def _submit(self, attempt: Attempt) -> bool:
        name = attempt.order.context.execution_id
        if name in self.refuse:
            return False
        self.going.append(name)
        self.taken[name] = attempt
        return True

    def ask(self, of: Any, name: str, flow: str = "f", lane: bool = False) -> None:
        context = StepContext(name, flow, of.name, "path", 1, "token", f"{name}:token", 7)
        order = StepOrder(0, "lease", StepCall(of, (), {}), context, lane)
        assert self.attempts.ask(order, self.box)  # type: ignore[arg-type]

    def end(self, name: str) -> None:
        attempt = self.taken.pop(name)
        assert self.attempts.may_begin(attempt, 0)
        self.attempts.finish(attempt, StepDone("path", 1, 0, 0, b"null"))

    def withdraw(self, name: str) -> bool:
        return self.attempts.withdraw(name, "path", 1)


def test_no_more_bodies_of_a_limited_step_go_than_may_and_the_others_follow_in_order() -> None:
    stage = Stage()
    for n in range(5):
        stage.ask(narrow, f"n{n}")
    assert stage.going == ["n0", "n1"]
    stage.end("n1")
    stage.end("n0")
    assert stage.going == ["n0", "n1", "n2", "n3"]
    stage.end("n2")
    assert stage.going[-1] == "n4"


def test_a_limited_step_holds_up_no_other_one() -> None:
    stage = Stage(bodies=4)
    for n in range(50):
        stage.ask(narrow, f"n{n}")
    stage.ask(plain, "p0")
    stage.ask(plain, "p1")
    stage.ask(plain, "p2")
    assert stage.going == ["n0", "n1", "p0", "p1"]
    stage.end("n0")
    assert stage.going[-1] == "p2", "it came to the gate of all before the next narrow one was through its own"
    stage.end("p0")
    assert stage.going[-1] == "n2"


def test_flows_take_turns_where_all_bodies_are_taken() -> None:
    stage = Stage(bodies=1)
    for n in range(100):
        stage.ask(plain, f"a{n}", flow="a")
    stage.ask(plain, "b", flow="b")
    stage.end("a0")
    stage.end("a1")
    assert stage.going == ["a0", "a1", "b"]


def test_flows_take_turns_where_all_processes_are_taken() -> None:
    stage = Stage(bodies=1, processes=2)
    for n in range(100):
        stage.ask(apart, f"a{n}", flow="a")
    stage.ask(apart, "b", flow="b")
    stage.ask(plain, "p")
    assert stage.going == ["a0", "a1", "p"]
    stage.end("a0")
    stage.end("a1")
    assert stage.going[-2:] == ["a2", "b"]


def test_sync_bodies_and_those_of_the_lane_take_no_place_on_the_loop() -> None:
    stage = Stage(bodies=1)
    stage.ask(plain, "p0")
    stage.ask(plain, "p1")
    stage.ask(narrow_sync, "s0")
    stage.ask(narrow_sync, "s1")
    stage.ask(narrow_sync, "s2")
    stage.ask(plain, "lane", lane=True)
    assert stage.going == ["p0", "s0", "s1", "lane"]


@pytest.mark.pain(44)
def test_flows_take_turns_in_the_lane_and_a_crowd_there_holds_up_nobody_under_no_suspicion() -> None:
    stage = Stage(bodies=1, processes=1)
    for n in range(9):
        stage.ask(narrow if n % 2 else apart, f"a{n}", flow="a", lane=True)
    stage.ask(plain, "b", flow="b", lane=True)
    stage.ask(narrow, "n")
    stage.ask(apart, "p")
    assert stage.going == ["a0", "a1", "a2", "a3", "p"], "two of them are of the limited step, as many as may"
    assert stage.attempts.set_apart == (0, 10)
    stage.end("a1")
    assert stage.going[5:] == ["n", "a4"]
    stage.end("a0")
    assert stage.going[7:] == ["b"]


@pytest.mark.pain(8)
def test_who_waits_in_the_lane_keeps_no_place_of_its_step_from_others() -> None:
    stage = Stage()
    for n in range(4):
        stage.ask(apart, f"busy{n}", lane=True)
    for n in range(2):
        stage.ask(narrow, f"suspect{n}", lane=True)
    stage.ask(narrow, "innocent")
    assert stage.going[4:] == ["innocent"]


@pytest.mark.pain(44)
def test_an_attempt_that_waits_in_the_lane_is_withdrawn_at_once_and_no_drain_waits_for_it() -> None:
    stage = Stage()
    for n in range(7):
        stage.ask(apart, f"a{n}", lane=True)
    for n in range(4):
        assert stage.attempts.may_begin(stage.taken[f"a{n}"], 0, "process")
    assert (stage.attempts.active, stage.attempts.set_apart) == (7, (4, 3))
    assert stage.withdraw("a4")
    assert (stage.attempts.active, stage.attempts.set_apart) == (6, (4, 2))
    stage.attempts.close(lambda: None)
    assert (stage.attempts.active, stage.attempts.set_apart) == (4, (4, 0))
    stage.attempts.finish(stage.taken["a0"], StepDone("path", 1, 0, 0, b"null"))
    assert stage.going == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize("waits_at", ["its own gate", "the gate of all"])
def test_a_withdrawn_attempt_never_goes_and_takes_no_place(waits_at: str) -> None:
    stage = Stage(bodies=100 if waits_at == "its own gate" else 1)
    names = [f"n{n}" for n in range(4)]
    for name in names:
        stage.ask(narrow, name)
    first = "n2" if waits_at == "its own gate" else "n1"
    assert stage.withdraw(first)
    for name in [name for name in names if name != first]:
        stage.end(name)
    assert stage.going == [name for name in names if name != first]
    assert stage.attempts.active == 0


def test_an_attempt_that_is_withdrawn_before_its_body_begins_makes_room() -> None:
    stage = Stage()
    for n in range(3):
        stage.ask(narrow, f"n{n}")
    assert stage.withdraw("n0")
    assert stage.going == ["n0", "n1", "n2"]
    assert not stage.attempts.may_begin(stage.taken["n0"], 0)


def test_attempts_that_no_thread_takes_make_room_and_are_asked_for_again() -> None:
    stage = Stage()
    stage.refuse = {f"s{n}" for n in range(2000)}
    for n in range(2):
        stage.ask(narrow_sync, f"busy{n}")
    for n in range(2000):
        stage.ask(narrow_sync, f"s{n}")
    stage.ask(narrow_sync, "last")
    stage.end("busy0")
    assert stage.going[-1] == "last"
    assert [type(message) for message in stage.box.told[:-1]].count(StepHeld) >= 1999


def test_when_the_intake_closes_those_that_wait_are_dropped_and_only_bodies_are_waited_for() -> None:
    stage = Stage(bodies=2)
    for n in range(5):
        stage.ask(narrow, f"n{n}")
        stage.ask(plain, f"p{n}")
    running = {name: stage.taken[name] for name in ("n0", "p0")}
    assert stage.going == ["n0", "p0"]
    for attempt in running.values():
        assert stage.attempts.may_begin(attempt, 0)
    idle: list[str] = []
    stage.attempts.close(lambda: idle.append("idle"))
    assert stage.attempts.active == 2
    for attempt in running.values():
        assert idle == []
        stage.attempts.finish(attempt, StepDone("path", 1, 0, 0, b"null"))
    assert idle == ["idle"]
    assert stage.going == ["n0", "p0"]


def test_bodies_are_counted_by_place_while_they_run() -> None:
    stage = Stage()
    for name, place in (("a", "loop"), ("b", "thread"), ("c", "process")):
        stage.ask(apart if place == "process" else narrow, name, lane=place == "process")
        assert stage.attempts.may_begin(stage.taken[name], 0, place)  # type: ignore[arg-type]
    assert stage.attempts.bodies == {"loop": 1, "thread": 1, "process": 1}
    assert stage.attempts.set_apart == (1, 0)
    stage.attempts.finish(stage.taken["a"], StepDone("path", 1, 0, 0, b"null"))
    stage.attempts.finish(stage.taken["b"], None)
    stage.attempts.finish(stage.taken["c"], StepDone("path", 1, 0, 0, b"null"))
    assert stage.attempts.bodies == {"loop": 0, "thread": 0, "process": 0}
    assert stage.attempts.set_apart == (0, 0)


def test_a_body_that_could_not_begin_is_not_counted_as_one_that_has_ended() -> None:
    stage = Stage()
    stage.ask(narrow, "a")
    stage.attempts.finish(stage.taken["a"], StepDone("path", 1, 0, 0, b"null"))
    assert stage.attempts.bodies == {"loop": 0, "thread": 0, "process": 0}
    assert stage.attempts.active == 0


def test_the_begin_of_a_later_attempt_is_told_with_how_late_it_is() -> None:
    stage = Stage()
    for name, attempt in (("first", 1), ("later", 2)):
        context = StepContext(name, "f", "narrow", "path", attempt, "token", f"{name}:token", 7)
        order = StepOrder(0, "lease", StepCall(narrow, (), {}), context, ready_at=1_000)
        stage.attempts.ask(order, stage.box)  # type: ignore[arg-type]
        stage.attempts.may_begin(stage.taken[name], 1_250)
    assert stage.box.told == [BodyBegan("path", 2, 1_250, 250)]
