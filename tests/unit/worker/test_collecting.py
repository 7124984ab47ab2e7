"""Metrics are asked of shards one question at a time, and nobody waits for one that says nothing."""

from __future__ import annotations

import pytest
from unit.worker.fleet_stage import Scene, pulse

from stepwell.metrics.merging import Family, Sample
from stepwell.worker import control as c
from stepwell.worker.collecting import Scraped


def counted(value: float) -> c.Collected:
    return c.Collected((Family("done", "counter", "Done.", (Sample("done_total", (), value),)),))


def total(scene: Scene) -> float:
    [metric] = scene.merged.collect()
    return metric.samples[0].value


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.start()
    return made


def test_a_question_is_answered_when_all_have_answered(scene: Scene) -> None:
    question = scene.collecting.ask()
    scene.say(0, counted(1))
    assert scene.collecting.answered < question
    scene.say(1, counted(2))
    assert scene.collecting.answered == question
    assert total(scene) == 3


def test_one_question_at_a_time_and_another_if_somebody_asked_meanwhile(scene: Scene) -> None:
    scene.collecting.ask()
    later = scene.collecting.ask()
    assert [process.told for process in scene.processes] == [[c.Collect()]] * 2
    scene.say(0, counted(1))
    scene.say(1, counted(1))
    assert scene.collecting.answered < later, "what they said may be from before it was asked"
    assert [process.told for process in scene.processes] == [[c.Collect(), c.Collect()]] * 2
    scene.say(0, counted(2))
    scene.say(1, counted(2))
    assert scene.collecting.answered == later
    assert [len(process.told) for process in scene.processes] == [2, 2]


@pytest.mark.pain(42)
def test_a_mute_shard_is_not_waited_for_and_its_last_answer_counts(scene: Scene) -> None:
    scene.collecting.ask()
    scene.say(0, counted(1))
    scene.say(1, counted(10))
    question = scene.collecting.ask()
    scene.now += 2.5
    scene.say(0, pulse())
    assert scene.collecting.answered < question
    scene.say(0, counted(2))
    assert scene.collecting.answered == question
    assert total(scene) == 12
    for _ in range(1000):
        scene.collecting.ask()
    assert scene.processes[1].told == [c.Collect()] * 2, "its pipe would fill up"


def test_a_question_that_did_not_go_out_is_asked_again(scene: Scene) -> None:
    scene.process(0).deaf = True
    scene.collecting.ask()
    scene.process(0).deaf = False
    scene.collecting.ask()
    assert scene.process(0).told == [c.Collect()]


def test_shards_that_have_not_begun_are_not_waited_for() -> None:
    scene = Scene()
    scene.fleet.start()
    question = scene.collecting.ask()
    assert scene.collecting.answered == question
    assert [process.told for process in scene.processes] == [[], []]


@pytest.mark.pain(42)
def test_totals_stay_when_a_shard_dies_and_grow_with_its_successor(scene: Scene) -> None:
    scene.collecting.ask()
    scene.say(0, counted(5))
    scene.say(1, counted(7))
    scene.dies(0)
    assert total(scene) == 12
    scene.later(0.5)
    scene.comes_up(0)
    assert total(scene) == 12
    scene.collecting.ask()
    scene.say(0, counted(1))
    assert total(scene) == 13


def test_what_a_shard_says_at_its_end_counts(scene: Scene) -> None:
    scene.fleet.drain(1.0)
    scene.process(0).said = [counted(9), c.Drained(0)]
    scene.falls(0, "exit code 0")
    assert total(scene) == 9


def test_a_scrape_asks_first(scene: Scene) -> None:
    scene.merged.update("x", counted(1).families)
    asked: list[float] = []

    def refresh(seconds: float) -> None:
        asked.append(seconds)
        scene.merged.update("x", counted(2).families)

    [metric] = Scraped(scene.merged, refresh).collect()
    assert metric.samples[0].value == 2
    assert asked == [0.5]
