"""Random flows over shards that come and go at random keep every promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from sim.harness import World
from sim.sharing_storm import SharingStorm
from sim.storm import planned

MakeWorld = Callable[..., World]


def storm_of(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int, *, gentle: bool = False
) -> SharingStorm:
    monkeypatch.setattr("stepwell.actors.kit.supervision.RestartIntensity.record", lambda *_: True)
    world = make_world(planned, seed=seed, partitions=4)
    world.share()
    storm = SharingStorm(world, gentle=gentle)
    storm.blow(100)
    return storm


@pytest.mark.slow
@pytest.mark.pain(6, 30, 35)
@pytest.mark.parametrize("seed", range(6))
def test_while_shards_come_and_go_every_attempt_runs_once(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    storm = storm_of(make_world, monkeypatch, seed, gentle=True)
    storm.calm()
    storm.check()
    ran = Counter((run.execution_id, run.path, run.attempt) for run in storm.world.ledger.runs)
    assert set(ran.values()) <= {1}
    for execution_id in storm.plans:
        assert all(each["interruptions"] == 0 for each in storm.world.show(execution_id)["steps"])


@pytest.mark.slow
@pytest.mark.pain(6, 9, 30, 40)
@pytest.mark.parametrize("seed", range(12))
def test_every_promise_holds_while_shards_come_go_die_and_freeze(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    storm = storm_of(make_world, monkeypatch, seed)
    storm.calm()
    storm.check()
    assert storm.world.audit.checked > 0


@pytest.mark.slow
def test_these_storms_bring_every_kind_of_change(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: set[str] = set()
    for seed in range(12):
        faults.update(storm_of(make_world, monkeypatch, seed).faults)
    assert faults >= {"join", "leave", "crash", "machine dies", "freeze", "grace over", "down", "crash at a commit"}
