"""What becomes of shards: who dies comes back, who hangs is killed, who never gets anywhere ends the worker."""

from __future__ import annotations

import logging

import pytest
from unit.worker.fleet_stage import Process, Scene, pulse

from stepwell.core.restarts import RestartRules
from stepwell.worker import control as c


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.start()
    return made


def test_all_are_started_and_it_is_known_when_all_run() -> None:
    scene = Scene(3)
    scene.fleet.start()
    assert len(scene.processes) == 3
    for index in range(3):
        assert not scene.fleet.had_started
        scene.comes_up(index)
    assert scene.fleet.had_started
    assert [slot.host_info for slot in scene.slots] == ["h,b,0,1", "h,b,1,1", "h,b,2,1"]
    assert scene.metric("stepwell_shards", state="running") == 3


def test_a_shard_that_had_committed_comes_back_at_once_and_its_sibling_looks_for_what_is_free(scene: Scene) -> None:
    scene.commits(0)
    scene.falls(0)
    assert scene.examinations == [(0, 1)]
    assert not any(isinstance(message, c.Hurry) for message in scene.process(1).told)
    scene.fleet.examined(0, 1, named=False)
    assert scene.process(1).told[-1] == c.Hurry()
    scene.fleet.tick()
    assert (len(scene.processes), scene.slots[0].state, scene.slots[0].life) == (3, "starting", 2)
    assert scene.metric("stepwell_shard_restarts_total", cause="killed") == 1
    assert scene.processes[0].buried


def test_what_was_said_last_is_heard_before_the_death(scene: Scene) -> None:
    scene.commits(0)
    scene.process(0).said = [c.Failed("ShardFailed", "dispatcher failed: KeyError")]
    scene.dies(0, "exit code 1")
    death = scene.slots[0].death
    assert death is not None
    assert (death.committed, death.cause) == (True, "dispatcher failed: KeyError")
    scene.fleet.tick()
    assert scene.metric("stepwell_shard_restarts_total", cause="failed") == 1


def test_what_a_predecessor_had_committed_is_not_its_successor_s(scene: Scene) -> None:
    scene.commits(0)
    scene.dies(0)
    scene.fleet.tick()
    scene.dies(0)
    assert scene.slots[0].memory.in_vain == 1


def test_pauses_grow_while_a_shard_gets_nowhere(scene: Scene) -> None:
    for expected in (0.25, 0.5, 1.0, 2.0):
        scene.dies(0)
        assert scene.fleet.due == scene.now + expected
        scene.now += expected - 0.01
        scene.fleet.tick()
        assert scene.slots[0].state == "waiting"
        scene.now += 0.02
        scene.fleet.tick()
        assert scene.slots[0].state == "starting"


def test_a_shard_that_never_gets_anywhere_ends_the_worker_and_says_why(scene: Scene) -> None:
    for number in range(RestartRules().deaths_max):
        assert scene.fleet.failure == ""
        scene.dies(0, f"exit code {number}")
        scene.later(10)
    assert scene.fleet.failure == (
        "shard w/0 died 5 times in a row without having committed anything:"
        " exit code 4 while it started; before that: exit code 3 while it started;"
        " before that: exit code 2 while it started"
    )
    assert scene.slots[0].state == "ended"
    assert scene.slots[1].state == "running", "it is drained, which is the parent's to do"


def test_a_shard_whose_commits_nobody_could_count_may_have_committed_once_it_ran() -> None:
    scene = Scene()
    scene.sheetless = True
    scene.start()
    for _ in range(2 * RestartRules().deaths_max):
        scene.dies(0)
        scene.fleet.tick()
        scene.comes_up(0)
    assert (scene.fleet.failure, scene.slots[0].memory.in_vain) == ("", 0)
    scene.dies(0)
    scene.fleet.tick()
    for _ in range(RestartRules().deaths_max):
        assert scene.fleet.failure == ""
        scene.dies(0)
        scene.later(10)
    assert "died 5 times in a row" in scene.fleet.failure, "what never ran has not committed"


def test_deaths_whose_suspect_is_named_go_on_until_strikes_end_them(scene: Scene) -> None:
    for _ in range(20):
        scene.dies(0, named=True)
        scene.later(0.5)
        assert scene.slots[0].state == "starting"
    assert scene.fleet.failure == ""


def test_a_restart_does_not_wait_for_long_for_what_the_box_says(scene: Scene) -> None:
    scene.falls(0)
    scene.later(1.5)
    assert scene.slots[0].state == "examined"
    scene.later(1.0)
    assert scene.slots[0].state in ("waiting", "starting")
    scene.later(1.0)
    scene.fleet.examined(0, 1, named=True)
    assert scene.process(1).told[-1] == c.Hurry(), "its leases are free only now"
    assert scene.slots[0].state == "starting"


def test_of_a_shard_that_hung_it_is_known_where_if_it_has_just_said_so(scene: Scene) -> None:
    place = "at flows.py:3 in f"
    for slot in scene.slots:
        scene.say(slot.index, pulse(problem="held", held_at=place))
    scene.slots[0].heard_at -= 3.0
    scene.busy.update({0: 10.1, 1: 10.1})
    scene.fleet.tick()
    for slot in scene.slots:
        scene.fleet.look(slot)
    assert [slot.hung_at for slot in scene.slots] == ["", place]
    assert scene.slots[1].kill_cause is not None
    assert scene.slots[1].kill_cause.text == f"one turn of its scheduler took over 10 s {place}"


def test_a_turn_that_takes_too_long_is_its_shards_end(scene: Scene) -> None:
    scene.busy[1] = 10.0
    scene.later(0.5)
    assert scene.process(1).how == ""
    scene.busy[1] = 10.1
    scene.later(0.5)
    assert scene.process(1).how == "killed by SIGKILL"
    scene.busy.clear()
    scene.fleet.look(scene.slots[1])
    scene.fleet.examined(1, 1, named=True)
    scene.fleet.tick()
    assert scene.metric("stepwell_shard_restarts_total", cause="hang") == 1
    assert scene.process(0).how == ""


def test_a_shard_of_which_nothing_is_heard_is_killed(scene: Scene) -> None:
    for _ in range(119):
        scene.now += 0.5
        scene.say(0, pulse())
        scene.fleet.tick()
        assert scene.process(1).how == ""
    scene.now += 1.0
    scene.fleet.tick()
    assert scene.process(1).how == "killed by SIGKILL"
    cause = scene.slots[1].kill_cause
    assert cause is not None
    assert cause.kind == "silent"
    assert scene.process(0).how == ""


def test_of_a_start_that_takes_long_people_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.fleet.start()
    scene.comes_up(0)
    scene.later(29.0)
    assert "of its start" not in caplog.text
    scene.later(60.0)
    [said] = [message for message in caplog.messages if "of its start" in message]
    assert said.startswith("shard w/1 has said nothing for 30 s")
    assert len(scene.processes) == 2, "it is waited for"


def test_a_death_before_it_ran_says_so(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.dies(0)
    scene.later(1.0)
    scene.falls(0, "exit code 3")
    assert caplog.messages[-1] == "shard w/0 died: exit code 3 while it started"


def test_a_parent_that_was_held_up_itself_blames_nobody(scene: Scene) -> None:
    scene.later(1)
    scene.now += 3600
    scene.fleet.tick()
    assert [process.how for process in scene.processes] == ["", ""]


def test_a_shard_that_talks_nonsense_is_killed(scene: Scene) -> None:
    scene.process(0).nonsense = True
    scene.fleet.hear(scene.slots[0])
    assert scene.processes[0].how == "killed by SIGKILL"
    scene.dies(0, "killed by SIGKILL")
    scene.later(1)
    assert scene.metric("stepwell_shard_restarts_total", cause="nonsense") == 1


def test_a_process_that_can_not_be_made_is_tried_again_later(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.full = True
    scene.dies(0)
    scene.later(0.5)
    assert scene.slots[0].state == "waiting"
    assert "it can't be started: no more processes" in caplog.text
    scene.full = False
    scene.later(1)
    assert scene.slots[0].state == "starting"
    assert scene.slots[0].life == 3


def test_a_shard_in_trouble_asks_for_its_server(scene: Scene) -> None:
    scene.say(0, c.Trouble())
    assert scene.troubles == 1


@pytest.mark.pain(35)
def test_all_are_told_at_once_and_what_they_cut_short_adds_up(scene: Scene) -> None:
    scene.fleet.drain(30.0)
    assert [process.told for process in scene.processes] == [[c.Drain(30.0)]] * 2
    for index, left in ((0, 1), (1, 2)):
        assert not scene.fleet.over
        scene.process(index).said = [c.Drained(left)]
        scene.falls(index, "exit code 0")
    assert scene.fleet.over
    assert (scene.fleet.cut_short, scene.fleet.failure) == (3, "")
    assert scene.examinations == []


@pytest.mark.pain(8)
@pytest.mark.parametrize("dies", ["before", "meanwhile"])
def test_the_end_waits_for_what_killed_one_as_long_as_its_leases_last(scene: Scene, dies: str) -> None:
    if dies == "before":
        scene.falls(0)
    scene.fleet.drain(30.0)
    if dies == "meanwhile":
        scene.falls(0)
    scene.process(1).said = [c.Drained(0)]
    scene.falls(1, "exit code 0")
    for _ in range(5):
        scene.later(1.9)
        assert not scene.fleet.over, "its suspects may not be written down yet"
    scene.later(1.0)
    assert scene.fleet.over


class TestDrain:
    """What may happen on the way to the end."""

    def test_nobody_comes_back(self, scene: Scene) -> None:
        scene.dies(0)
        scene.fleet.drain(30.0)
        assert scene.fleet.due is None, "nothing is to be done at that time any more"
        scene.later(60)
        assert len(scene.processes) == 2
        assert scene.slots[0].state == "ended"

    def test_one_that_dies_meanwhile_is_examined_and_makes_it_a_failure(self, scene: Scene) -> None:
        scene.fleet.drain(30.0)
        scene.falls(0)
        scene.process(1).said = [c.Drained(0)]
        scene.falls(1, "exit code 0")
        assert not scene.fleet.over
        scene.fleet.examined(0, 1, named=False)
        assert scene.fleet.over
        assert scene.fleet.failure == "shard w/0 died before it had ended: killed by SIGSEGV"

    def test_one_that_had_died_before_is_examined_and_no_failure(self, scene: Scene) -> None:
        scene.falls(0)
        scene.fleet.drain(30.0)
        scene.process(1).said = [c.Drained(0)]
        scene.falls(1, "exit code 0")
        assert not scene.fleet.over
        scene.fleet.examined(0, 1, named=False)
        assert scene.fleet.over
        assert not scene.fleet.failure

    def test_one_that_does_not_end_after_its_grace_is_killed(self, scene: Scene) -> None:
        scene.fleet.drain(30.0)
        scene.later(54.5)
        assert [process.how for process in scene.processes] == ["", ""]
        scene.later(1.0)
        assert [process.how for process in scene.processes] == ["killed by SIGKILL"] * 2

    def test_one_that_has_only_now_come_up_ends_as_well(self) -> None:
        scene = Scene(1)
        scene.fleet.start()
        scene.fleet.drain(30.0)
        scene.comes_up(0)
        assert scene.slots[0].state == "ending"
        scene.process(0).said = [c.Drained(0)]
        scene.falls(0, "exit code 0")
        assert scene.fleet.over

    def test_one_that_fails_is_left_to_end_by_itself_for_a_while(self, scene: Scene) -> None:
        scene.say(0, c.Failed("ShardFailed", "dispatcher failed"))
        scene.fleet.drain(300.0)
        assert scene.process(0).told == []
        scene.later(26)
        assert scene.process(0).how == "killed by SIGKILL"
        assert scene.process(1).how == ""


class TestRefusal:
    """What can't even start."""

    def test_the_first_start_tells_why(self, caplog: pytest.LogCaptureFixture) -> None:
        scene = Scene()
        scene.fleet.start()
        refusal = c.Failed("FlowLoadError", "there is no file x.py")
        with caplog.at_level(logging.INFO):
            scene.say(0, c.Hello("h,b,0,1"), refusal)
            scene.falls(0, "exit code 1")
        assert scene.fleet.refusal == refusal
        assert caplog.messages == [], "whoever waits for the start is told"

    def test_later_ones_are_deaths(self, scene: Scene) -> None:
        scene.dies(0)
        scene.later(0.5)
        scene.say(0, c.Failed("FlowLoadError", "line 1 of flows.py: SyntaxError"))
        scene.dies(0, "exit code 1")
        assert scene.fleet.refusal is None
        assert scene.slots[0].memory.in_vain == 2
        assert scene.slots[0].memory.causes[-1] == "line 1 of flows.py: SyntaxError"


def test_killing_all_clears_all_away(scene: Scene) -> None:
    first: list[Process] = list(scene.processes)
    scene.fleet.kill()
    assert all(process.buried for process in first)
    assert scene.fleet.over
