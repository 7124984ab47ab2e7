"""Everything at once, drawn by a seed: every promise holds, every count equals the truth, nothing is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from sim.counts import check_all_is_over, check_counts
from sim.harness import World
from sim.tempest import FLOWS, Tempest

from stepwell.actors import store_events

MakeWorld = Callable[..., World]


@pytest.fixture
def tempest(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tempest]:
    monkeypatch.setattr("stepwell.actors.kit.supervision.RestartIntensity.record", lambda *_: True)

    def make(seed: int, *, gentle: bool = False, loses: bool = False) -> Tempest:
        world = make_world(*FLOWS, seed=seed, partitions=4, loses_rows=loses)
        if loses:
            # What a row says can't be held against anybody while the server forgets.
            world.checks.clear()
            world.ledger.on_run.clear()
        world.checks.append(lambda: check_counts(world))
        world.share()
        world.look_seconds = 1.0
        storm = Tempest(world, gentle=gentle, loses=loses)
        storm.blow(80)
        storm.calm()
        storm.check()
        world.run_for(14.0)
        check_all_is_over(world)
        return storm

    return make


@pytest.mark.slow
@pytest.mark.pain(6, 9, 30, 37, 40)
@pytest.mark.parametrize("seed", range(2))
def test_every_promise_holds_and_nothing_is_left_behind(tempest: Callable[..., Tempest], seed: int) -> None:
    assert tempest(seed).world.audit.checked > 0


@pytest.mark.slow
@pytest.mark.pain(6, 30)
@pytest.mark.parametrize("seed", range(1))
def test_where_nothing_breaks_every_attempt_runs_once_and_no_sweep_finds_anything(
    tempest: Callable[..., Tempest], seed: int
) -> None:
    world = tempest(seed, gentle=True).world
    ran = Counter((run.execution_id, run.path, run.attempt) for run in world.ledger.runs)
    assert set(ran.values()) <= {1}
    assert world.of_type(store_events.SweepFound) == []
    assert world.of_type(store_events.Fenced) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_all_end_right_though_the_server_forgets_its_last_second_too(
    tempest: Callable[..., Tempest], seed: int
) -> None:
    tempest(seed, loses=True)
