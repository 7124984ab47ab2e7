"""Notices a body that holds up the event loop: all async steps of the shard wait meanwhile, and nothing else tells."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Final

from stepwell.actors.kit.clock import monotonic as usual_monotonic
from stepwell.actors.kit.frames import place_of
from stepwell.actors.runner.attempts import Attempt
from stepwell.metrics.saying import say

__all__ = ["HELD_SECONDS_MAX", "LoopWatch"]

logger = logging.getLogger("stepwell.runner")
HELD_SECONDS_MAX: Final = 2.0


class LoopWatch:
    """Asks the loop for an answer at each `look`, and warns once where it owes one for long.

    `soon` calls something on the loop's thread; `at_work` are the attempts whose bodies run.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        soon: Callable[..., None],
        at_work: Callable[[], Iterable[Attempt]],
        monotonic: Callable[[], float] = usual_monotonic,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._loop = loop
        self._thread = thread
        self._soon = soon
        self._at_work = at_work
        self._monotonic = monotonic
        self._frames = frames
        self._asked_at: float | None = None
        self._told = False

    def look(self) -> None:
        """Called now and then, by one thread that is not the loop's."""
        asked_at = self._asked_at
        if asked_at is None:
            self._told = False
            self._asked_at = self._monotonic()
            self._soon(self._answer)
            return
        held = self._monotonic() - asked_at
        if self._told or held < HELD_SECONDS_MAX or not self._thread.is_alive():
            return
        task, frame = asyncio.current_task(self._loop), self._frames().get(self._thread.ident or 0)
        if task is None or frame is None or self._asked_at is None:  # it is just coming back
            return
        self._told = True
        order = next((each.order for each in self._at_work() if each.body is task), None)
        of = None if order is None else order.context
        who = "a task of a step" if of is None else f"step {of.path} of execution {of.execution_id}"
        code = None if order is None else getattr(order.call.step.fn, "__code__", None)
        place = _place(frame, "" if code is None else code.co_filename)
        told = (
            "%s has held the event loop for %.0f s %s; all async steps of this shard wait:"
            " make it a plain def, or move what blocks into asyncio.to_thread"
        )
        say(logger, "StepLoopHeld", told, who, held, place, of={} if of is None else of.log_fields, where=place)

    def _answer(self) -> None:
        self._asked_at = None


def _place(inmost: FrameType, file: str) -> str:
    """The place in the step's own file that was passed last, rather than the one in a library that it calls."""
    frame: FrameType | None = inmost
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return place_of(inmost if frame is None else frame)
