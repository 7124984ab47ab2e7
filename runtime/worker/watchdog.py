"""Notices flow code that holds the scheduler: all executions of the shard wait meanwhile, so somebody must be told."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from stepwell.actors.kit.frames import place_of
from stepwell.actors.kit.scheduler import ThreadScheduler
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.watchdog")
HELD_SECONDS_MAX = 2.0


class Watchdog:
    """Looks at who is at work on the scheduler's thread, and since when. `look` is called now and then."""

    def __init__(
        self,
        scheduler: ThreadScheduler,
        monotonic: Callable[[], float],
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._frames = frames
        self._told: tuple[str, float] | None = None

    def problem(self) -> str:
        """Who holds the scheduler, for how long, and where in the code; empty while nobody does."""
        current = self._held()
        if current is None:
            return ""
        name, since = current
        return (
            f"{name} has held the scheduler for {self._monotonic() - since:.0f} s {self._place() or 'somewhere'};"
            " all executions wait: move what takes long out of the flow and into a @step"
        )

    def held_at(self) -> str:
        """The place in the code at which somebody holds the scheduler, as "at FILE:LINE in NAME"; empty while nobody
        does, and where it is not known."""
        return "" if self._held() is None else self._place()

    def look(self) -> None:
        """Warn once for each time that somebody holds the scheduler."""
        current = self._scheduler.current
        problem = self.problem()
        if current is not None and problem and current != self._told:
            self._told = current
            name, where = current[0], self._place() or None
            # Those of a shard's own actors begin with a colon.
            of = {"part": name.lstrip(":")} if name.startswith(":") else {"execution": name}
            say(logger, "SchedulerHeld", "%s", problem, where=where, of=of)

    def _held(self) -> tuple[str, float] | None:
        current = self._scheduler.current
        return None if current is None or self._monotonic() - current[1] < HELD_SECONDS_MAX else current

    def _place(self) -> str:
        thread = self._scheduler.timer_heap.thread
        frame = None if thread is None else self._frames().get(thread)
        return "" if frame is None else place_of(frame)
