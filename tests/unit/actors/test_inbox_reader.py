"""What the reader reads when partitions come and go while the server blinks."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from stepwell.actors.holdings import Holdings
from stepwell.actors.inbox import InboxReader
from stepwell.actors.kit.clock import VirtualClock
from stepwell.store.census import Counts, Lying
from stepwell.store.link import LinkDown


class Blinks:
    """A store whose first reading breaks; what happens meanwhile is up to the test."""

    unreadable: Mapping[int, str] = {}

    def __init__(self) -> None:
        self.meanwhile: list[Any] = []
        self.read_from: list[list[int]] = []

    def read(self, after: Mapping[int, str], *_: object) -> list[Any]:
        self.read_from.append(sorted(after))
        if self.meanwhile:
            self.meanwhile.pop()()
            raise LinkDown("gone for a moment")
        return []

    def last_event_ms(self, partitions: list[int]) -> list[int]:
        return [0 for _ in partitions]

    def parked(self, partitions: list[int]) -> list[list[str]]:
        return [[] for _ in partitions]

    def falling_due(self, _: object) -> list[Any]:
        return []

    def count(self, _: object) -> Counts:
        return Counts({}, {}, {}, Lying())


def test_a_partition_that_is_lost_while_its_taking_over_fails_is_not_read_on() -> None:
    clock = VirtualClock()
    store = Blinks()
    reader = InboxReader(store, Holdings(clock.monotonic), clock, clock.advance, lambda: None, lambda _: None)  # type: ignore[arg-type]
    reader.dispatcher = SimpleNamespace(tell=lambda message: None)  # type: ignore[assignment]
    reader.gained(0)
    reader.gained(1)
    store.meanwhile.append(lambda: reader.lost(0))
    reader.run_once(None)
    for _ in range(3):
        reader.run_once(None)
    assert store.read_from == [[0, 1], *[[1]] * (len(store.read_from) - 1)]
    assert len(store.read_from) > 3
