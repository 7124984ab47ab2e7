"""Events to their subscribers: metrics, logs, live views. A subscriber that fails is reported and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import Event
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.bus")
Subscriber: TypeAlias = Callable[[Event], None]
Follower: TypeAlias = Callable[[Event, Checkpoint], None]
"""A subscriber that is told, too, what the event made of the execution, and before the others, who may ask it which
trace that belongs to. It must not raise."""


@runtime_checkable
class Choosy(Protocol):
    """A subscriber that says beforehand what it does about a kind of event, as most kinds are nothing to it."""

    def handler(self, kind: type[Event]) -> Subscriber | None:
        """What to call with each event of that kind; None: nothing."""
        ...


class Bus:
    """Calls each subscriber with each event, on the thread that publishes."""

    def __init__(self, subscribers: tuple[Subscriber, ...] = (), follower: Follower | None = None) -> None:
        self._subscribers = subscribers
        self._follower = follower
        self._handlers: dict[type[Event], list[tuple[Subscriber, Subscriber]]] = {}  # each with whose it is

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; before the shard starts."""
        self._subscribers = (*self._subscribers, subscriber)
        self._handlers.clear()

    def publish(self, *events: Event, about: Checkpoint | None = None) -> None:
        """Tell everybody. An observer's fault must not harm the execution that it observes.

        `about`: the execution as the events' commit left it.
        """
        for event in events:
            if self._follower is not None and about is not None:
                self._follower(event, about)
            handlers = self._handlers.get(type(event))
            for subscriber, handle in self._choose(type(event)) if handlers is None else handlers:
                try:
                    handle(event)
                except Exception as error:
                    told = "subscriber %r failed and gets no more events"
                    say(logger, "PartErred", told, subscriber, traceback=error, part="events")
                    self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)
                    self._handlers.clear()

    def _choose(self, kind: type[Event]) -> list[tuple[Subscriber, Subscriber]]:
        chosen = self._handlers[kind] = []
        for subscriber in self._subscribers:
            handle = subscriber.handler(kind) if isinstance(subscriber, Choosy) else subscriber
            if handle is not None:
                chosen.append((subscriber, handle))
        return chosen
