"""Events to their subscribers: metrics, logs, live views. A subscriber that fails is reported and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import Event

logger = logging.getLogger("stepwell.bus")
Subscriber: TypeAlias = Callable[[Event], None]
Follower: TypeAlias = Callable[[Event, Checkpoint], None]
"""A subscriber that is told, too, what the event made of the execution. It must not raise."""


class Bus:
    """Calls each subscriber with each event, on the thread that publishes."""

    def __init__(self, subscribers: tuple[Subscriber, ...] = (), follower: Follower | None = None) -> None:
        self._subscribers = subscribers
        self._follower = follower

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; before the shard starts."""
        self._subscribers = (*self._subscribers, subscriber)

    def publish(self, *events: Event, about: Checkpoint | None = None) -> None:
        """Tell everybody. An observer's fault must not harm the execution that it observes.

        `about`: the execution as the events' commit left it.
        """
        for event in events:
            for subscriber in self._subscribers:
                try:
                    subscriber(event)
                except Exception:
                    logger.exception("subscriber %r failed and gets no more events", subscriber)
                    self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)
            if self._follower is not None and about is not None:
                self._follower(event, about)
