"""The receiver's bad habits: which request of which step is answered how. Drawn from a seed, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import cycle
from random import Random

__all__ = ["RETRY_AFTER_SECONDS", "Habit", "Habits", "Pair"]

Pair = tuple[str, str]
"""An order and a step."""

RETRY_AFTER_SECONDS = 1  # HTTP knows whole seconds only
BROKEN = 8  # steps that fail until somebody repairs the receiver: more than any budget lasts


class Habit(StrEnum):
    """How one request is answered."""

    GOOD = "good"  # the effect is recorded and answered
    UNAVAILABLE = "503"  # nothing is recorded
    BUSY = "503 with Retry-After"
    TOO_MANY = "429 with Retry-After"
    RESET = "reset after recording"  # the effect is recorded, the answer is lost


# The first requests of a step that has one of these; later ones are good. Each budget outlasts them.
_COURSES: tuple[tuple[int, tuple[Habit, ...]], ...] = (
    (16, (Habit.RESET,)),
    (6, (Habit.RESET, Habit.RESET)),
    (6, (Habit.UNAVAILABLE, Habit.RESET, Habit.TOO_MANY)),
    (16, (Habit.UNAVAILABLE,)),
    (8, (Habit.UNAVAILABLE, Habit.UNAVAILABLE)),
    (6, (Habit.UNAVAILABLE, Habit.UNAVAILABLE, Habit.UNAVAILABLE)),
    (5, (Habit.BUSY,)),
    (5, (Habit.TOO_MANY, Habit.UNAVAILABLE)),
)


class Habits:
    """What the receiver does to each (order, step)."""

    def __init__(self, seed: int, orders: Sequence[str], steps: Sequence[str]) -> None:
        chance = Random(seed)
        shuffled = chance.sample(list(orders), len(orders))
        # Half of the broken ones record the effect and never say so: those a retry must not do again.
        kinds = cycle((Habit.UNAVAILABLE, Habit.UNAVAILABLE, Habit.RESET, Habit.RESET))
        broken = zip(shuffled[:BROKEN], cycle(steps), strict=False)
        self.broken: dict[Pair, Habit] = dict(zip(broken, kinds, strict=False))
        rest = [(order, step) for order in orders for step in steps if (order, step) not in self.broken]
        chance.shuffle(rest)
        self.courses: dict[Pair, tuple[Habit, ...]] = {}
        for count, course in _COURSES:
            for pair in rest[:count]:
                self.courses[pair] = course
            rest = rest[count:]

    def habit(self, pair: Pair, earlier: int, repaired: bool) -> Habit:
        """How the next request of a pair is answered.

        Args:
            pair: its order and step.
            earlier: how many requests of this pair came before.
            repaired: whether the receiver has been repaired.
        """
        if pair in self.broken:
            return Habit.GOOD if repaired else self.broken[pair]
        course = self.courses.get(pair, ())
        return course[earlier] if earlier < len(course) else Habit.GOOD
