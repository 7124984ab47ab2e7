"""The explorer: a seed decides everything, every kind of thing is drawn, and what fails is made shorter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sim.explore import schedule
from sim.explore.acts import ACTS
from sim.explore.run import Exploration, carry_out
from sim.explore.schedule import BUGS, CALM_ACTS, FAULTS, LOSSES, SHARING_ACTS, USER_ACTS, draw
from sim.explore.shrink import shrink

# Shards come and go in these, and nothing breaks.
GENTLE = [seed for seed in range(300) if draw(seed).setting.gentle and draw(seed).setting.sharing][:6]
TESTS = Path(__file__).resolve().parent.parent


def clock() -> float:
    """A clock that stands still: no time budget is ever used up."""
    return 0.0


@pytest.mark.pain(7, 9, 12, 21, 22, 25, 28, 29, 30, 35, 37, 40, 57)
@pytest.mark.parametrize("seed", range(40))
def test_every_promise_is_kept_whatever_a_seed_draws(seed: int) -> None:
    outcome = carry_out(draw(seed))
    assert not outcome.broken, outcome.where
    assert outcome.commits


@pytest.mark.pain(6, 30)
@pytest.mark.parametrize("seed", GENTLE)
def test_where_nothing_breaks_every_attempt_runs_once(seed: int) -> None:
    outcome = carry_out(draw(seed))
    assert not outcome.broken, outcome.where
    assert outcome.faults["join"] or outcome.faults["leave"]


def test_a_seed_replays_exactly_also_in_another_process() -> None:
    outcome = carry_out(draw(22))
    command = [sys.executable, "-m", "sim.explore", "--seed", "22"]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert f"digest {outcome.digest}\n" in told


def test_telling_a_run_changes_nothing_in_it() -> None:
    lines: list[str] = []
    assert carry_out(draw(7), lines.append).digest == carry_out(draw(7)).digest
    assert any("commits" in line for line in lines)


def test_a_schedule_without_some_beats_leaves_the_others_as_they_are() -> None:
    whole = draw(35)
    assert draw(35) == whole
    assert whole.only(whole.beats[3:]).stream(whole.beats[5].number) == whole.stream(whole.beats[5].number)


def test_every_act_is_drawn_and_done() -> None:
    known = {"mark", *USER_ACTS, *CALM_ACTS, *SHARING_ACTS, *FAULTS, *LOSSES, *BUGS}
    assert known == set(ACTS)
    drawn = Counter(beat.act for seed in range(300) for beat in draw(seed).beats)
    assert set(drawn) == known
    done = sum((carry_out(draw(seed)).faults for seed in range(40, 56)), Counter[str]())
    assert {"crash", "machine dies", "dies in a turn", "freeze", "lost reply", "slow", "join", "leave"} <= set(done)
    assert {"link: lost", "link: torn", "link: repeated", "link: dies after"} <= set(done)


def test_a_failure_is_made_shorter_and_still_fails_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(run: Exploration) -> str:
        shard = next(iter(run.shards()), None)
        if shard is not None and run.model.plans:
            raise AssertionError("a promise is broken on purpose")
        return ""

    monkeypatch.setitem(ACTS, "rest", break_down)
    seed = next(seed for seed in range(300) if any(beat.act == "rest" for beat in draw(seed).beats[10:]))
    outcome = carry_out(draw(seed))
    assert outcome.broken == "a promise is broken on purpose"
    shorter = shrink(draw(seed), outcome, 1.0, clock)
    assert [beat.act for beat in shorter.beats] == ["start", "rest"]
    assert carry_out(shorter).broken == outcome.broken


def test_schedules_differ_in_their_settings() -> None:
    settings = [draw(seed).setting for seed in range(100)]
    for name in ("sharing", "gentle", "loses", "drifts", "parents"):
        assert {getattr(each, name) for each in settings} == {True, False}
    assert {each.partitions for each in settings} == {1, 2, 3, 4}
    assert schedule.BEATS
