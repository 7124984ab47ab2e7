"""The scheduler of tests and simulations: no thread, no real time, the same order every time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pykka

from stepwell.actors.kit.cell import Cell
from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.kit.reply import BlockingCallRefused, Reply
from stepwell.actors.kit.scheduler_base import NO_TURN_LOG, TURN_MESSAGES_MAX, OnDeadLetter, Scheduler, TurnLog
from stepwell.actors.kit.supervision import OnCrash

__all__ = ["MESSAGES_MAX", "ActorCrashed", "VirtualScheduler"]

MESSAGES_MAX = 1_000_000


class ActorCrashed(RuntimeError):
    """An actor failed that nobody supervises; the cause is its error."""


class VirtualScheduler(Scheduler):
    """Runs the actors inside the caller's thread, only when asked to; only `advance` and `run_until` let time pass.

    Without a seed runnable actors take turns first come, first served. With one, a random actor is picked for each
    message, so that different seeds try different interleavings, and the same seed the same one.

    Where no `on_crash` is given, a failure that nobody supervises is raised as `ActorCrashed` by what ran the actor.
    """

    clock: VirtualClock

    def __init__(
        self,
        clock: VirtualClock | None = None,
        seed: int | None = None,
        on_crash: OnCrash | None = None,
        on_dead_letter: OnDeadLetter | None = None,
        turns: TurnLog = NO_TURN_LOG,
    ) -> None:
        self._runnable: deque[Cell] = deque()
        super().__init__(clock or VirtualClock(), self._runnable.append, on_crash or self._keep_crash, on_dead_letter)
        self._turns = turns
        self._random = None if seed is None else random.Random(seed)
        self._crash: tuple[str, BaseException] | None = None
        self._at_work: str | None = None

    @property
    def ready(self) -> int:
        """How many actors have mail and wait for their turn."""
        return len(self._runnable)

    def step(self) -> int:
        """Fire what is due and give one actor one turn; how many messages that were, 0 if nothing can run."""
        with self._running("step()"):
            return self._turn()

    def run_until_idle(self, max_messages: int = MESSAGES_MAX) -> int:
        """Run until nobody has mail and no timer is due now; how many messages that were. No time passes."""
        with self._running("run_until_idle()"):
            return self._drain(max_messages)

    def advance(self, seconds: float, max_messages: int = MESSAGES_MAX) -> None:
        """Let `seconds` pass: each timer fires at its own instant, and all actors run until idle at each."""
        with self._running("advance()"):
            end = self.clock.monotonic() + seconds
            left = max_messages - self._drain(max_messages)
            while (due := self.timer_heap.next_due()) is not None and due <= end:
                self.clock.advance_to(max(due, self.clock.monotonic()))
                left -= self._drain(left)
            self.clock.advance_to(end)

    def run_until(
        self, predicate: Callable[[], object], limit_seconds: float, max_messages: int = MESSAGES_MAX
    ) -> None:
        """Jump from timer to timer until `predicate()` is true while all actors are idle.

        TimeoutError if it is not within `limit_seconds` of virtual time, or if nothing is left that could run.
        """
        with self._running("run_until()"):
            end = self.clock.monotonic() + limit_seconds
            left = max_messages - self._drain(max_messages)
            while not predicate():
                due = self.timer_heap.next_due()
                if due is None:
                    raise TimeoutError(
                        "what was waited for did not happen, and nothing is left to run: no timer, no mail"
                    )
                if due > end:
                    raise TimeoutError(
                        f"what was waited for did not happen within {limit_seconds} s of virtual time;"
                        f" the next timer is due in {due - self.clock.monotonic():g} s"
                    )
                self.clock.advance_to(max(due, self.clock.monotonic()))
                left -= self._drain(left)

    def next_due(self) -> float | None:
        """When the next timer is due, on `clock.monotonic()`; None without one."""
        return self.timer_heap.next_due()

    def stop(self) -> None:
        """Stop all actors, youngest first, each with its `on_stop`."""
        with self._running("stop()"):
            self._end(Cell.stop)
            self._runnable.clear()

    def refuse_blocking(self, what: str) -> None:
        if self._at_work is not None:
            raise BlockingCallRefused(
                f"{what} would block the thread that runs all actors (called by {self._at_work}):"
                " tell a message and take the answer as a message"
            )

    def before_waiting(self, reply: Reply) -> None:
        self.refuse_blocking("Future.get()")
        if not reply.answered:
            self.run_until_idle()
        if not reply.answered:
            raise pykka.Timeout("all actors are idle and none has answered; virtual time passes only by advance()")

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        self.refuse_blocking(what)
        self._at_work = what
        try:
            yield
        finally:
            self._at_work = None
        self._raise_crash()

    def _turn(self) -> int:
        self.timer_heap.fire(self.clock.monotonic())
        runnable = self._runnable
        if not runnable:
            return 0
        limit = TURN_MESSAGES_MAX
        if self._random is not None:
            runnable.rotate(-self._random.randrange(len(runnable)))
            limit = 1
        cell = runnable.popleft()
        self._at_work = cell.name
        self._turns.turn(cell.name, self.clock.monotonic())
        handled = cell.take_turn(limit)
        self._turns.idle()
        self._raise_crash()
        return max(1, handled)

    def _drain(self, max_messages: int) -> int:
        handled = 0
        while count := self._turn():
            handled += count
            if handled > max_messages:
                names = sorted({cell.name for cell in self._runnable} | {str(self._at_work)})[:5]
                raise RuntimeError(
                    f"the limit of {max_messages} messages is used up and actors still have mail: probably they send"
                    f" themselves or each other messages without end. At work: {', '.join(names)}"
                )
        return handled

    def _keep_crash(self, name: str, error: BaseException, text: str) -> None:
        self._crash = self._crash or (name, error)

    def _raise_crash(self) -> None:
        if self._crash is not None:
            (name, error), self._crash = self._crash, None
            raise ActorCrashed(f"{name} failed and nobody supervises it: {error!r}") from error
