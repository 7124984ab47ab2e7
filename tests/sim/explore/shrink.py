"""Makes a failing schedule shorter: what is left out is not needed for it to fail in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sim.explore.run import Outcome, carry_out
from sim.explore.schedule import Schedule


def kind_of(outcome: Outcome) -> str:
    """What two failures of the same kind have in common: the promise, without names, numbers and times."""
    return re.sub(r"\W+", " ", re.sub(r"[\w./#:]*\d[\w./#:]*", "", outcome.broken))[:60]


class Shrinking:
    """Tries schedules until none is shorter, or `seconds` of `now` are over. `best` is the shortest that fails."""

    def __init__(self, schedule: Schedule, outcome: Outcome, seconds: float, now: Callable[[], float]) -> None:
        self.best = schedule
        self.tried = 0
        self._wanted = kind_of(outcome)
        self._now = now
        self._end = now() + seconds

    def run(self) -> Schedule:
        """Beats in halves, quarters, ... first, then executions, then single beats and turns again and again."""
        size = max(1, len(self.best.beats) // 2)
        while size > 1:
            self._drop_beats(size)
            size //= 2
        shorter = True
        while shorter and self._now() < self._end:
            shorter = any([self._drop_executions(), self._drop_beats(1), self._drop_turns()])
        return self.best

    def _fails(self, schedule: Schedule) -> bool:
        if self._now() >= self._end and self.tried:
            return False
        self.tried += 1
        fails = kind_of(carry_out(schedule)) == self._wanted
        if fails:
            self.best = schedule
        return fails

    def _drop_beats(self, size: int) -> bool:
        shorter, place = False, 0
        while place < len(self.best.beats):
            beats = self.best.beats
            if self._fails(self.best.only(beats[:place] + beats[place + size :])):
                shorter = True
            else:
                place += size
        return shorter

    def _drop_executions(self) -> bool:
        left = [number for number in range(self.best.setting.executions) if number not in self.best.absent]
        fails = [self._fails(replace(self.best, absent=self.best.absent | {number})) for number in left]
        return any(fails)

    def _drop_turns(self) -> bool:
        shorter = False
        for place, beat in enumerate(self.best.beats):
            for turns in sorted({0, beat.turns // 2} - {beat.turns}):
                calmer = replace(beat, turns=turns)
                beats = self.best.beats
                if self._fails(self.best.only((*beats[:place], calmer, *beats[place + 1 :]))):
                    shorter = True
                    break
        return shorter


def shrink(schedule: Schedule, outcome: Outcome, seconds: float, now: Callable[[], float]) -> Schedule:
    """The shortest schedule found within that time that breaks the same promise."""
    return Shrinking(schedule, outcome, seconds, now).run()
