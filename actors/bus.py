"""Events to their subscribers: metrics, logs, live views. A subscriber that fails is reported and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from stepwell.core.events import Event

logger = logging.getLogger("stepwell.bus")
Subscriber: TypeAlias = Callable[[Event], None]


class Bus:
    """Calls each subscriber with each event, on the thread that publishes."""

    def __init__(self, subscribers: tuple[Subscriber, ...] = ()) -> None:
        self._subscribers = subscribers

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; before the shard starts."""
        self._subscribers = (*self._subscribers, subscriber)

    def publish(self, event: Event) -> None:
        """Tell everybody. An observer's fault must not harm the execution that it observes."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                logger.exception("subscriber %r failed and gets no more events", subscriber)
                self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)
