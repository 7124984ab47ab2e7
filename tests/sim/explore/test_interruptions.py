"""What the watcher of interruptions lets pass, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sim.bodies import Ledger, Run
from sim.explore.interruptions import Interruptions

from stepwell.core.records import STEP, OpenOp, encode
from stepwell.core.status import STEP_RUNNING


class Stand:
    """A world of one step: its row says how often it was interrupted."""

    def __init__(self) -> None:
        self.times = 0
        self.ledger = Ledger()
        shard = SimpleNamespace(name="inc1", in_order=False)
        self.world: Any = SimpleNamespace(ledger=self.ledger, dead=[shard], peek=SimpleNamespace(field=self._field))
        self.watcher = Interruptions(self.world)

    def _field(self, _execution_id: str, name: str) -> bytes:
        assert name == "p:pay"
        return encode(OpenOp(STEP, STEP_RUNNING, "t", 0, "pay", attempt=1, interruptions=self.times))

    def runs(self, attempt: int = 1, shard: str = "inc2", ended: int | None = None) -> None:
        for look in self.ledger.on_run:
            look(Run("e1", "pay", attempt, "e1:t", 0, shard, 1, ended))


def test_an_attempt_that_a_crash_cut_short_may_not_run_again_uncounted() -> None:
    stand = Stand()
    stand.runs(shard="inc1")
    with pytest.raises(AssertionError, match="e1 pay attempt 1 runs again after a crash"):
        stand.runs()


def test_counted_ended_and_forgotten_attempts_may_and_those_of_a_drain() -> None:
    counted, ended, forgotten, drained, next_one = (Stand() for _ in range(5))
    for stand in (counted, forgotten, drained, next_one):
        stand.runs(shard="inc1")
    ended.runs(shard="inc1", ended=5)
    counted.times = 1
    forgotten.watcher.forget()
    drained.world.dead[0].in_order = True
    for stand in (counted, ended, forgotten, drained):
        stand.runs()
    next_one.runs(attempt=2)
