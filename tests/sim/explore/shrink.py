"""Makes a failing schedule shorter: beats, and turns after them, are taken away while it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sim.explore.run import Outcome, carry_out
from sim.explore.schedule import Beat, Schedule

Beats = tuple[Beat, ...]


def kind_of(outcome: Outcome) -> str:
    """What two failures of the same kind have in common: the promise, without names, numbers and times."""
    return re.sub(r"\W+", " ", re.sub(r"[\w./#:]*\d[\w./#:]*", "", outcome.broken))[:60]


def shrink(schedule: Schedule, outcome: Outcome, seconds: float, now: Callable[[], float]) -> Schedule:
    """The shortest schedule found within that time; the given one if no other fails in the same way."""
    end = now() + seconds
    wanted = kind_of(outcome)

    def fails(beats: Beats) -> bool:
        return kind_of(carry_out(schedule.only(beats))) == wanted

    beats = schedule.beats
    size = max(1, len(beats) // 2)
    while now() < end:
        shorter = _without_some(beats, size, fails, lambda: now() < end)
        if len(shorter) == len(beats) and size == 1:
            break
        beats, size = shorter, max(1, min(size, len(shorter)) // 2)
    for place, beat in enumerate(beats):
        for turns in {0, beat.turns // 2} - {beat.turns}:
            calmer = (*beats[:place], replace(beat, turns=turns), *beats[place + 1 :])
            if now() < end and fails(calmer):
                beats = calmer
                break
    return schedule.only(beats)


def _without_some(beats: Beats, size: int, fails: Callable[[Beats], bool], goes_on: Callable[[], bool]) -> Beats:
    place = 0
    while place < len(beats) and goes_on():
        fewer = beats[:place] + beats[place + size :]
        if fails(fewer):
            beats = fewer
        else:
            place += size
    return beats
