"""Random flows in random weather keep every promise; a seed that does not fails again in the same way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.harness import World
from sim.storm import Storm, planned

MakeWorld = Callable[..., World]
SEEDS = range(60)


def storm_of(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int) -> Storm:
    monkeypatch.setattr("stepwell.actors.kit.supervision.RestartIntensity.record", lambda *_: True)
    monkeypatch.setattr("stepwell.actors.mirror.BATCH_REQUESTS_MAX", 1 + seed % 4)
    storm = Storm(make_world(planned, seed=seed))
    storm.world.parents = seed % 2 == 1  # somebody reads the black boxes of the dead, or nobody does
    storm.blow(150)
    return storm


@pytest.mark.pain(7, 12, 21, 22, 25, 28, 29, 30, 57)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_in_a_storm(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    storm = storm_of(make_world, monkeypatch, seed)
    storm.calm()
    storm.check()
    assert storm.world.audit.checked > 0


def test_a_seed_replays_exactly(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for _ in range(2):
        storm = storm_of(make_world, monkeypatch, 7)
        storm.calm()
        sent = [(type(s.request).__name__, s.done, repr(s.reply)) for s in storm.world.sent]
        seen.append((storm.faults, sent, storm.world.events, storm.world.clock.monotonic()))
    assert seen[0] == seen[1]


def test_the_storms_bring_every_kind_of_fault(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: set[str] = set()
    for seed in range(24):
        faults.update(storm_of(make_world, monkeypatch, seed).faults)
    crashes = {"crash", "crash at a commit", "crash in a turn"}
    assert faults >= {*crashes, "down", "lost read", "lease", "passivate", "rebuild"}
