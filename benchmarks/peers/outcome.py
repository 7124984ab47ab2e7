"""What was found about each system."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.peer import Peer

__all__ = ["Outcome", "Recovered", "Spread", "Turn", "advantage"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of one system: throughput of `flows` five-step flows, latency of flows that ran alone.

    `cpu_ms_per_step` is what workers and server used, the load not counted unless it runs the flows itself; None where
    the system can't tell. `load_before` is the machine's load average before it.
    """

    flows: int
    steps_per_second: float
    p50_ms: float
    p99_ms: float
    latencies: int
    cpu_ms_per_step: float | None
    load_before: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a kill -9 of the worker did. `seconds` from its new start until the last step ended; None: not all did.

    `twice` counts steps that were completed more than once, `unfinished` flows whose last step had not ended after
    `patience` seconds.
    """

    flows: int
    seconds: float | None
    steps_at_kill: int
    twice: int
    unfinished: int
    patience: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of what was measured several times, with the least and the most."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError if there is none."""
        if not values:
            raise ValueError("a spread needs at least one value")
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All about one system. `skipped` says why nothing was measured; `failures` what went wrong in single turns.

    `turns` has one place a round, None where it failed.
    """

    peer: Peer
    versions: Mapping[str, str]
    turns: Sequence[Turn | None] = ()
    recovery: Recovered | None = None
    skipped: str = ""
    failures: Sequence[str] = ()

    def spread(self, value: Callable[[Turn], float | None]) -> Spread | None:
        """Of one number over all turns; None where none was measured."""
        found = [number for turn in self.turns if turn is not None and (number := value(turn)) is not None]
        return Spread.of(found) if found else None


def advantage(ours: Outcome, theirs: Outcome) -> Spread | None:
    """How many times our throughput is of theirs, round by round, so that a busy machine slows both."""
    pairs = [
        ours_turn.steps_per_second / their_turn.steps_per_second
        for ours_turn, their_turn in zip(ours.turns, theirs.turns, strict=False)
        if ours_turn is not None and their_turn is not None
    ]
    return Spread.of(pairs) if pairs else None
