"""Work that may take long, beside a loop that must not wait: done on its own thread, told to the loop afterwards."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from stepwell.metrics.saying import say

__all__ = ["Background"]

T = TypeVar("T")
logger = logging.getLogger("stepwell.worker")


class Background:
    """Does one thing after the other. `post` hands what follows to the loop."""

    def __init__(self, name: str, post: Callable[[Callable[[], None]], None]) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._post = post
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work`, then let the loop call `then` with what came of it. Where it raises, that is logged, no more."""

        def both() -> None:
            found = work()
            self._post(lambda: then(found))

        self._work.put(both)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                name = threading.current_thread().name
                say(logger, "PartErred", "%s failed", name, traceback=error, part=name)
