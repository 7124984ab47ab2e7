"""Timers: an actor's own, by key, on one heap per scheduler.

Starting, cancelling and firing happen on the scheduler's thread only, so nothing here is locked. A cancelled timer
stays in the heap, empty, until half of the heap is such; then the heap is rebuilt without them.
"""

from __future__ import annotations

import heapq
import math
import threading
from typing import TYPE_CHECKING

from stepwell.actors.kit.cell import Cell, Parcel
from stepwell.actors.kit.supervision import Where

if TYPE_CHECKING:
    from stepwell.actors.kit.pooled import PooledActor
    from stepwell.core.clock import Clock

__all__ = ["Timer", "TimerHeap", "Timers"]

_DEAD_KEPT = 64


class Timer(Parcel):
    """One started timer: an entry of the heap, and once due an item of the mailbox.

    Replacing or cancelling it takes its owner away; so it does nothing any more, wherever it lies.
    """

    __slots__ = ("key", "owner")
    where: Where = "timer"

    def __init__(self, owner: Cell, key: str, message: object) -> None:
        super().__init__(message)
        self.owner: Cell | None = owner
        self.key = key

    def open(self, cell: Cell, actor: PooledActor) -> None:
        if self.owner is not None:
            self.owner.timers.pop(self.key)
            actor.on_receive(self.message)

    def give_back(self, name: str) -> None:
        """Nobody waits for a timer."""

    def cancel(self) -> None:
        """Its message is not sent, or does nothing any more."""
        owner, self.owner, self.message = self.owner, None, None
        if owner is not None:
            owner.scheduler.timer_heap.note_cancelled()


class TimerHeap:
    """All timers of one scheduler, by due time, then by the order they were started in."""

    def __init__(self, clock: Clock) -> None:
        self.thread: int | None = None
        self._clock = clock
        self._entries: list[tuple[float, int, Timer]] = []
        self._started = 0
        self._dead = 0

    def __len__(self) -> int:
        """Entries in memory, the cancelled ones that were not yet swept out included."""
        return len(self._entries)

    def add(self, timer: Timer, delay: float) -> None:
        """Make it due in `delay` seconds; a negative delay is due now."""
        if not delay < math.inf:
            raise ValueError(f"expected the delay of timer {timer.key!r} in seconds, got: {delay}")
        if self.thread is not None and self.thread != threading.get_ident():
            raise RuntimeError(f"timer {timer.key!r} was started on a foreign thread: tell the actor to start it")
        self._started += 1
        heapq.heappush(self._entries, (self._clock.monotonic() + max(0.0, delay), self._started, timer))

    def next_due(self) -> float | None:
        """When the next timer is due, in the clock's monotonic seconds; None without one."""
        entries = self._entries
        while entries and entries[0][2].owner is None:
            heapq.heappop(entries)
            self._dead -= 1
        return entries[0][0] if entries else None

    def fire(self, now: float) -> None:
        """Send the messages of all timers that are due at `now` monotonic seconds, in order."""
        entries = self._entries
        while entries and entries[0][0] <= now:
            timer = heapq.heappop(entries)[2]
            if timer.owner is None:
                self._dead -= 1
            else:
                timer.owner.put(timer)

    def note_cancelled(self) -> None:
        """One of the entries has become empty. (Or it lay in a mailbox: then the next sweep comes a bit early.)"""
        self._dead += 1
        if self._dead > _DEAD_KEPT and self._dead * 2 > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].owner is not None]
            heapq.heapify(self._entries)
            self._dead = 0


class Timers:
    """One actor's timers, which lie in its cell. A key names at most one of them."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def start(self, key: str, delay: float, message: object) -> None:
        """Send `message` to this actor in `delay` seconds; a timer of that key that still runs is replaced."""
        cell = self._cell
        if cell.closed:
            return
        timer = Timer(cell, key, message)
        cell.scheduler.timer_heap.add(timer, delay)
        self.cancel(key)
        if not cell.timers:
            cell.timers = {}
        cell.timers[key] = timer

    def cancel(self, key: str) -> bool:
        """Make the timer do nothing, even if its message is in the mailbox already; False if there is none."""
        timer = self._cell.timers.pop(key, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    def active(self, key: str) -> bool:
        """Whether that timer was started and its message is not yet handled."""
        return key in self._cell.timers
