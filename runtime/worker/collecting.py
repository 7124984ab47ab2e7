"""Asking shards for their metrics: one question at a time each, so that no pipe fills up; the mute hold up nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from stepwell.metrics.merging import Family, MergedMetrics
from stepwell.worker import control as c
from stepwell.worker.slots import Slot

__all__ = ["Collecting", "Scraped"]

SCRAPE_SECONDS: Final = 0.5
"""How long a scrape waits for shards; of one that does not answer in time the last known answer counts."""

MUTE_SECONDS: Final = 2.0
"""A shard that says nothing for so long is not waited for; it speaks twice a second."""


class Collecting:
    """Questions are numbered; an answer counts for all that were asked before the shard was."""

    def __init__(self, slots: Sequence[Slot], merged: MergedMetrics, monotonic: Callable[[], float]) -> None:
        self._slots = slots
        self._merged = merged
        self._monotonic = monotonic
        self._wanted = 0

    def ask(self) -> int:
        """Ask all that can answer; the question's number."""
        self._wanted += 1
        for slot in self._slots:
            self._ask(slot)
        return self._wanted

    def answer(self, slot: Slot, families: tuple[Family, ...]) -> None:
        """A shard has answered; it is asked again if somebody wants to know it as of later."""
        self._merged.update(slot.key, families)
        slot.answered = max(slot.answered, slot.asking)
        slot.asking = 0
        if slot.answered < self._wanted:
            self._ask(slot)

    def end(self, slot: Slot) -> None:
        """A shard's process has ended; what it had counted stays."""
        self._merged.end(slot.key)

    @property
    def answered(self) -> int:
        """The number of the last question that everyone has answered who can."""
        now = self._monotonic()
        able = [slot for slot in self._slots if _can_answer(slot) and now - slot.heard_at < MUTE_SECONDS]
        return min((slot.answered for slot in able), default=self._wanted)

    def _ask(self, slot: Slot) -> None:
        if slot.handle is not None and _can_answer(slot) and not slot.asking and slot.handle.send(c.Collect()):
            slot.asking = self._wanted


class Scraped(Collector):
    """The shards' metrics together, as of now. `refresh` asks for them and waits, at most so many seconds."""

    def __init__(self, merged: MergedMetrics, refresh: Callable[[float], None]) -> None:
        self._merged = merged
        self._refresh = refresh

    def collect(self) -> Iterable[Metric]:
        """Ask, then add up."""
        self._refresh(SCRAPE_SECONDS)
        return self._merged.collect()


def _can_answer(slot: Slot) -> bool:
    return slot.handle is not None and slot.pulse is not None
