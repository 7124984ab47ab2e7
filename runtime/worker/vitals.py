"""Tells everybody who looks, about once a second, how this shard is: what it does now, and what it has done lately."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping
from typing import Final

from stepwell.actors.runner import StepRunner
from stepwell.actors.runner.attempts import Attempt
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError, StoreUnreachable
from stepwell.core.vitals import RUNNING_MAX, RunningStep, Vitals, Work
from stepwell.metrics.saying import say
from stepwell.store.link import Link, StoreRefused
from stepwell.store.vitals import VitalsStore

__all__ = ["TELL_SECONDS", "VitalSigns"]

logger = logging.getLogger("stepwell.shard")
TELL_SECONDS: Final = 1.0
FORGET_SECONDS: Final = 3600.0


class VitalSigns:
    """The entry of one shard in `ns:vitals`. Nothing depends on it: where it can't be written it is left out.

    Args:
        link: how Redis is reached; not for writes that count.
        shard_id: the shard.
        life: the how manieth process of the shard this is.
        limit: attempts that may run at once.
        executions: how many are in memory.
        work: what has been counted.
        guarantee: what is in force, as labels.
        inbox_lag: seconds; see `Vitals`.
    """

    def __init__(
        self,
        link: Link,
        shard_id: str,
        life: int,
        clock: Clock,
        runner: StepRunner,
        limit: int,
        executions: Callable[[], int],
        work: Callable[[], Work],
        guarantee: Callable[[], Mapping[str, str]],
        inbox_lag: Callable[[], float],
    ) -> None:
        self._store = VitalsStore(link)
        self._shard_id = shard_id
        self._life = life
        self._clock = clock
        self._runner = runner
        self._limit = limit
        self._executions = executions
        self._work = work
        self._guarantee = guarantee
        self._inbox_lag = inbox_lag
        self._started_at = 0
        self._due = 0.0
        self._forget_due = 0.0
        self._warned = False

    def look(self) -> None:
        """Say how the shard is, if that was a second ago."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + TELL_SECONDS
        self._started_at = self._started_at or self._clock.now_ms()
        try:
            self._store.tell(self._shard_id, self._vitals())
            if now >= self._forget_due:
                self._forget_due = now + FORGET_SECONDS
                self._store.forget_silent(self._clock.now_ms())
        except (StoreUnreachable, StoreRefused) as error:
            logger.debug("the shard's vitals can't be told now: %s", error)
        except StoreError as error:
            if not self._warned:
                told = "what `stepwell top` shows of this shard can't be written: %s"
                say(logger, "KeyUnreadable", told, error, part="vitals", detail=error)
            self._warned = True

    def leave(self) -> None:
        """Take the entry off. Raises as Link does."""
        self._store.leave(self._shard_id)

    def _vitals(self) -> Vitals:
        under_way = self._runner.running
        at_work = self._runner.at_work()
        longest = heapq.nsmallest(RUNNING_MAX, at_work, key=lambda each: each.began_at)
        return Vitals(
            at=self._clock.now_ms(),
            started_at=self._started_at,
            life=self._life,
            executions=self._executions(),
            running=len(at_work),
            queued=max(0, under_way - len(at_work)),
            waits_apart=self._runner.set_apart[1],
            limit=self._limit,
            work=self._work(),
            inbox_lag=self._inbox_lag(),
            longest=tuple(map(_running, longest)),
            guarantee=dict(self._guarantee()),
        )


def _running(attempt: Attempt) -> RunningStep:
    context = attempt.order.context
    return RunningStep(context.execution_id, context.flow, context.path, context.attempt, attempt.began_at)
