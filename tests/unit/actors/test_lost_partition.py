"""What becomes of attempts whose partition is lost: nothing begins, and no outcome is kept that nobody asks for."""

from __future__ import annotations

import pytest
from unit.actors.test_gates import Stage, narrow, plain

from stepwell.actors.messages import StepDone
from stepwell.actors.runner import StepOrder
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall

DONE = StepDone("path", 1, 0, 0, b"null")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def begun(stage: Stage, name: str) -> None:
    stage.ask(plain, name)
    assert stage.attempts.may_begin(stage.taken[name], 0)


def test_the_outcome_of_a_body_that_ends_after_the_loss_is_not_kept(stage: Stage) -> None:
    begun(stage, "e1")
    stage.attempts.lose(0)
    assert stage.attempts.active == 1, "its body runs on"
    stage.attempts.finish(stage.taken["e1"], DONE)
    assert (stage.attempts._by_path, stage.attempts.active, stage.box.told) == ({}, 0, [])


def test_nor_is_one_that_nobody_had_recorded_before_the_loss(stage: Stage) -> None:
    begun(stage, "e1")
    stage.attempts.finish(stage.taken["e1"], DONE)
    stage.attempts.lose(0)
    assert (stage.attempts._by_path, stage.attempts.active) == ({}, 0)


@pytest.mark.parametrize("how", ["ask", "adopt"])
def test_whoever_is_ours_again_before_its_body_ends_gets_the_outcome(stage: Stage, how: str) -> None:
    begun(stage, "e1")
    stage.attempts.lose(0)
    if how == "ask":
        context = StepContext("e1", "f", "plain", "path", 1, "token", "e1:token", 8)
        order = StepOrder(0, "a new lease", StepCall(plain, (), {}), context)
        assert not stage.attempts.ask(order, stage.box), "its body runs already"  # type: ignore[arg-type]
    else:
        assert stage.attempts.adopt("e1", "path", 1, stage.box)  # type: ignore[arg-type]
    stage.attempts.finish(stage.taken["e1"], DONE)
    assert stage.box.told == [DONE]
    stage.attempts.settle("e1", "path", 1)
    assert stage.attempts._by_path == {}


def test_what_waits_for_its_turn_never_begins_and_others_are_not_held_up(stage: Stage) -> None:
    for name in ("e1", "e2", "e3", "e4"):
        stage.ask(narrow, name)
    stage.attempts.lose(0)
    assert (stage.attempts._by_path, stage.attempts.active) == ({}, 0)
    assert not any(stage.attempts.may_begin(attempt, 0) for attempt in stage.taken.values())
    stage.going.clear()
    stage.ask(narrow, "e5")
    stage.ask(narrow, "e6")
    assert stage.going == ["e5", "e6"]
    stage.attempts.lose(1)
    assert stage.attempts.active == 2, "that was another partition"
