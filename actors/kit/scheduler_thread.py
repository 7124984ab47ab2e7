"""The scheduler of a shard: one thread for all pooled actors and their timers."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

from stepwell.actors.kit.cell import Cell
from stepwell.actors.kit.reply import BlockingCallRefused, Reply
from stepwell.actors.kit.scheduler_base import NO_TURN_LOG, TURN_MESSAGES_MAX, OnDeadLetter, Scheduler, TurnLog
from stepwell.actors.kit.supervision import OnCrash, traceback_text
from stepwell.core.clock import Clock

__all__ = ["ThreadScheduler"]

# A wait does not count the time of a suspended host, the clock does: look at the timers again at least so often.
WAIT_SECONDS_MAX = 10.0


class _SchedulerThread(threading.Thread):
    """Marks the threads on which nothing may wait."""


class ThreadScheduler(Scheduler):
    """Runs the actors on a daemon thread; sleeps until there is mail or the next timer is due.

    `on_crash("scheduler", ...)` tells that the loop itself broke; then all actors are closed, and the process
    should end.
    """

    def __init__(
        self,
        clock: Clock,
        on_crash: OnCrash | None = None,
        on_dead_letter: OnDeadLetter | None = None,
        turns: TurnLog = NO_TURN_LOG,
    ) -> None:
        self._runnable: SimpleQueue[Cell | None] = SimpleQueue()
        super().__init__(clock, self._runnable.put, on_crash, on_dead_letter)
        self.current: tuple[str, float] | None = None
        """Who is at work and since when (`clock.monotonic()`); None while idle. For a watchdog on any thread."""
        self._turns = turns
        self._stopping = False
        self._thread = _SchedulerThread(target=self._run, name="scheduler", daemon=True)

    @property
    def ready(self) -> int:
        """How many actors have mail and wait for their turn. From any thread."""
        return self._runnable.qsize()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; once only. Actors spawned before begin now."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop all actors, youngest first, each with its `on_stop`, then the thread; True if that took no longer than
        `timeout` seconds.

        What is still in the mailboxes counts as undelivered: actors that must finish are stopped beforehand.
        """
        self.refuse_blocking("ThreadScheduler.stop()")
        self._stopping = True
        self._runnable.put(None)
        if self._thread.ident is None:
            self._end(Cell.abandon)
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def refuse_blocking(self, what: str) -> None:
        if isinstance(threading.current_thread(), _SchedulerThread):
            current = self.current
            raise BlockingCallRefused(
                f"{what} would block the thread that runs all actors (called by {current[0] if current else 'nobody'}):"
                " tell a message and take the answer as a message"
            )

    def before_waiting(self, reply: Reply) -> None:
        self.refuse_blocking("Future.get()")

    def _run(self) -> None:
        self.timer_heap.thread = threading.get_ident()
        self._turns.scheduler_is_here()
        try:
            self._loop()
            self._end(self._stop_cell)
        except BaseException as error:
            self._on_crash("scheduler", error, traceback_text(error))
        finally:
            # Whatever happened: nobody may wait for ever for an actor that gets no turn any more.
            self._end(Cell.abandon)
            self.current = None
            self._turns.idle()

    def _loop(self) -> None:
        monotonic = self.clock.monotonic
        runnable, heap, turn = self._runnable, self.timer_heap, self._turns.turn
        while not self._stopping:
            cell = self._wait() if runnable.empty() else runnable.get()
            now = monotonic()
            heap.fire(now)
            if cell is not None:
                self.current = (cell.name, now)
                turn(cell.name, now)
                cell.take_turn(TURN_MESSAGES_MAX)

    def _wait(self) -> Cell | None:
        self.current = None
        self._turns.idle()
        due = self.timer_heap.next_due()
        if due is None:
            return self._runnable.get()
        timeout = min(max(0.0, due - self.clock.monotonic()), WAIT_SECONDS_MAX)
        try:
            return self._runnable.get(timeout=timeout)
        except Empty:
            return None

    def _stop_cell(self, cell: Cell) -> None:
        self.current = (cell.name, self.clock.monotonic())
        self._turns.turn(*self.current)
        cell.stop()
