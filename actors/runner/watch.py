"""Notices a sync body that goes on long after its timeout, and frees its slot."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from stepwell.actors.kit.clock import monotonic
from stepwell.actors.runner.threads import ThreadPool
from stepwell.flow.context import StepContext
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.runner")
GIVE_UP_SECONDS = 30.0


class Watch:
    """Watches one body from its start to `ended`. `soon` calls something on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        soon: Callable[..., None],
        pool: ThreadPool,
        context: StepContext,
        timeout: float,
    ) -> None:
        self._loop = loop
        self._soon = soon
        self._pool = pool
        self._context = context
        self._lock = threading.Lock()
        self._over = False
        self._given_up = False
        self._handle: asyncio.TimerHandle | None = None
        self._began = monotonic()
        soon(self._arm, timeout + GIVE_UP_SECONDS)

    def _arm(self, delay: float) -> None:
        with self._lock:
            if not self._over:
                self._handle = self._loop.call_later(delay, self._give_up)

    def _give_up(self) -> None:
        with self._lock:
            if self._over:
                return
            self._given_up = self._pool.give_up_one()
        of = self._context
        told = (
            "step %s of execution %s hangs %g s beyond its timeout; a thread can't be stopped, its execution waits on"
        )
        say(logger, "ThreadGivenUp", told, of.path, of.execution_id, GIVE_UP_SECONDS, of=of.log_fields)

    def ended(self) -> float:
        """The body has returned or raised, after so many seconds."""
        with self._lock:
            self._over = True
            if self._given_up:
                self._pool.came_back()
        if self._handle is not None:
            self._soon(self._handle.cancel)
        return monotonic() - self._began
