"""What a shard says of its work, for live views: rates, what runs longest, how long steps took lately."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from stepwell.core.records import Count, Ms

__all__ = ["RUNNING_MAX", "STEPS_MAX", "Rates", "RunningStep", "StepTimes", "Vitals", "Work"]

RUNNING_MAX: Final = 10
"""So many running steps are told, those that run longest."""
STEPS_MAX: Final = 20
"""Of so many steps the durations are told, those with the longest mean."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class RunningStep(msgspec.Struct, frozen=True, gc=False):
    """An attempt whose body runs `since` that moment."""

    execution: str
    flow: str
    path: str
    attempt: Count
    since: Ms


class StepTimes(msgspec.Struct, frozen=True):
    """How long the completed attempts of one step ran, in the last minute or so.

    `spread`: pairs of a duration in seconds and how many took at most that long, and longer than the pair before;
    None instead of a duration: longer than all.
    """

    flow: str
    step: str
    completed: Count
    seconds: Seconds
    spread: tuple[tuple[Seconds | None, Count], ...]


class Rates(msgspec.Struct, frozen=True, gc=False):
    """How many a second, in the last few seconds: steps completed, attempts failed, and backoffs that ended with
    another attempt, whether or not that one has ended yet."""

    steps: Seconds = 0.0
    failures: Seconds = 0.0
    retries: Seconds = 0.0


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has been counted. `steps`, `failures` and `retries` are totals since the shard began."""

    steps: Count = 0
    failures: Count = 0
    retries: Count = 0
    rates: Rates = Rates()
    slowest: tuple[StepTimes, ...] = ()


class Vitals(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard's entry in `ns:vitals`.

    Attributes:
        at: when it was made, on the namespace's clock.
        started_at: when the process began its work.
        life: the how manieth process of this shard it is, since its worker was started.
        executions: in memory.
        running: attempts whose bodies run.
        queued: attempts that wait for their turn.
        waits_apart: those of them that may have killed a shard: each waits for a process of its own.
        limit: bodies that it runs at most.
        work: what has been counted.
        inbox_lag: age in seconds of its oldest inbox entry that is neither applied nor waits for room.
        longest: what runs longest, the longest first.
        guarantee: what is in force, as the shard sees it; empty until it has looked.
    """

    at: Ms
    started_at: Ms
    life: Count = 1
    executions: Count = 0
    running: Count = 0
    queued: Count = 0
    waits_apart: Count = 0
    limit: Count = 0
    work: Work = Work()
    inbox_lag: Seconds = 0.0
    longest: tuple[RunningStep, ...] = ()
    guarantee: dict[str, str] = {}
