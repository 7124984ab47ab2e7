"""An attempt that a crash has cut short is counted as interrupted, in Redis, before it runs again."""

from __future__ import annotations

from sim.bodies import Run
from sim.explore.world import ExploredWorld

from stepwell.core import records


class Interruptions:
    """Watches each body that begins in a world. What Redis has lost is not compared: see `forget`."""

    def __init__(self, world: ExploredWorld) -> None:
        self._world = world
        self._latest: dict[tuple[str, str], tuple[Run, int]] = {}
        world.ledger.on_run.append(self._begins)

    def forget(self) -> None:
        """Redis has lost writes."""
        self._latest.clear()

    def _begins(self, run: Run) -> None:
        key = (run.execution_id, run.path)
        raw = self._world.peek.field(run.execution_id, "p:" + run.path)
        if raw is None:
            return  # another promise is broken, and told by who watches that
        op = records.decode_open(raw)
        # Where a part fails while its shard drains, what it cuts short may have been told before.
        times = op.interruptions + op.drains
        before = self._latest.get(key)
        if before is not None and before[0].attempt == run.attempt and self._was_cut_short(before[0]):
            assert times > before[1], (
                f"{run.execution_id} {run.path} attempt {run.attempt} runs again after a crash, and is not counted as"
                f" interrupted: expected more than {before[1]} times, found {times}"
            )
        self._latest[key] = (run, times)

    def _was_cut_short(self, run: Run) -> bool:
        """Whether its shard crashed in it, or left it to itself when a part of it had failed, however it ended then.
        One that has drained bills nobody."""
        crashed = {shard.name for shard in self._world.dead if not shard.in_order}
        return run.cut_off or (run.ended_ms is None and run.shard in crashed)
