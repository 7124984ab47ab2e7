"""How much a shard does, and keeps, at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["GRACE_MOST", "LANE_SIZE", "PASSIVATE_LEAST", "WAKE_AHEAD_SECONDS", "Limits"]

GRACE_MOST: Final = 86_400
"""So many seconds at most a worker that is stopped waits for running steps."""
LANE_SIZE: Final = 4
"""So many steps that may have killed a shard run at once in each shard, in processes of their own."""
WAKE_AHEAD_SECONDS: Final = 5.0
"""What is not in memory is brought back so long before it is due."""
PASSIVATE_LEAST: Final = 10
"""So many seconds a rest has to last at least to be worth leaving memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one shard.

    Attributes:
        running: executions that run steps at once; more stay queued.
        steps: async step bodies at once; more wait their turn.
        in_memory: executions in memory; beyond it those that rest longest leave.
        passivate_after: seconds; what is to wait longer than that, or has waited so long for something untimed, leaves
            memory.
        processes: step bodies in processes of their own at once; more wait their turn.
    """

    running: int = 1000
    steps: int = 1000
    in_memory: int = 20_000
    passivate_after: float = 30.0
    processes: int = 4
