"""Handing a partition over to another living shard, without losing or interrupting anything.

`Handovers` (the lease thread's side) says when to begin and when to give it up; `Departures` (the dispatcher's) knows
what is left of a partition in memory. In between nothing of the partition begins, what runs may end and is recorded,
and its actors leave; then the lease is released. Inbox entries that were not applied stay where they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from stepwell.actors.messages import GraceOver, StepDone, StepErred

__all__ = ["AGAIN_SECONDS", "AGAIN_SECONDS_MAX", "QUIET_SECONDS", "Departures", "Handovers", "Moves", "first_outcome"]

QUIET_SECONDS = 2.0
AGAIN_SECONDS = 10.0
AGAIN_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Moves:
    """What to do now: partitions to begin with, and those to serve on."""

    begin: list[int] = field(default_factory=list)
    resume: list[int] = field(default_factory=list)


class Handovers:
    """Which partitions are on their way out. A try that is not quiet in time is given up, and made again later: each
    time after a longer pause, as each of them holds up the partition."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._pauses: dict[int, tuple[float, float]] = {}  # (not before, the pause that led there)

    def __contains__(self, partition: object) -> bool:
        return partition in self._until

    def plan(self, unwanted: Collection[int], now: float, patient: bool = False) -> Moves:
        """What is due at that monotonic second. `patient`: a try is never given up, as we serve nothing on."""
        moves = Moves()
        for partition in [each for each in self._pauses if each not in unwanted]:
            del self._pauses[partition]
        for partition, until in list(self._until.items()):
            if partition not in unwanted:
                self._end(partition, moves)
            elif patient:
                self._until[partition] = math.inf
            elif now >= until:
                self._end(partition, moves)
                pause = min(2 * self._pauses.get(partition, (0.0, AGAIN_SECONDS / 2))[1], AGAIN_SECONDS_MAX)
                self._pauses[partition] = (now + pause, pause)
        for partition in sorted(unwanted):
            not_before, _ = self._pauses.get(partition, (-math.inf, 0.0))
            if partition not in self._until and (patient or now >= not_before):
                self._until[partition] = math.inf if patient else now + QUIET_SECONDS
                moves.begin.append(partition)
        return moves

    def next_due(self) -> float:
        """When there is something to do again, if nothing else happens."""
        dues = [*self._until.values(), *(due for p, (due, _) in self._pauses.items() if p not in self._until)]
        return min(dues, default=math.inf)

    def forget(self, partition: int) -> None:
        """It is released or lost."""
        self._until.pop(partition, None)
        self._pauses.pop(partition, None)

    def _end(self, partition: int, moves: Moves) -> None:
        del self._until[partition]
        moves.resume.append(partition)


class Departures:
    """How many executions of each leaving partition are still in memory; `quiet` is told when it is none."""

    def __init__(self) -> None:
        self._left: Counter[int] = Counter()
        self._quiet: dict[int, Callable[[int], None]] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._quiet

    def __bool__(self) -> bool:
        return bool(self._quiet)

    def begin(self, partitions: Iterable[int], in_memory: Iterable[int], quiet: Callable[[int], None]) -> None:
        """These are leaving; `in_memory` has the partition of each execution in memory."""
        fresh = {partition: quiet for partition in partitions if partition not in self._quiet}
        self._quiet.update(fresh)
        for partition in in_memory:
            if partition in fresh:
                self._left[partition] += 1
        for partition in fresh:
            if not self._left[partition]:
                quiet(partition)

    def gone(self, partition: int) -> None:
        """One of a leaving partition's executions has left memory."""
        self._left[partition] -= 1
        if not self._left[partition]:
            self._quiet[partition](partition)

    def end(self, partition: int) -> bool:
        """It is served on, or not ours any more; False if it was not leaving."""
        del self._left[partition]
        return self._quiet.pop(partition, None) is not None


def first_outcome(mail: Sequence[object]) -> int | None:
    """Where the first word of what came of an attempt is in an actor's mail; None: there is none."""
    return next((place for place, each in enumerate(mail) if isinstance(each, StepDone | StepErred | GraceOver)), None)
