"""What stands for an actor: it keeps what it is told."""

from __future__ import annotations

import queue
from typing import Any

from stepwell.actors.messages import BodyBegan

HANG_SECONDS = 50.0


class Box:
    """Told by the thread of the test."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, message: object) -> None:
        self.told.append(message)

    def is_alive(self) -> bool:
        """As an actor that has not stopped."""
        return True


class WaitingBox:
    """Told by other threads; `next` waits for it. That a body begins is passed over."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def tell(self, message: object) -> None:
        if not isinstance(message, BodyBegan):
            self._told.put(message)

    def next(self) -> Any:
        return self._told.get(timeout=HANG_SECONDS)

    @property
    def empty(self) -> bool:
        return self._told.empty()
