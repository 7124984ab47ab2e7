"""What the schedulers share: spawning, the registry of living actors, and what becomes of lost mail and failures."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from stepwell.actors.kit.cell import Cell
from stepwell.actors.kit.ref import AnyRef, PooledRef
from stepwell.actors.kit.supervision import ChildFailed, OnCrash
from stepwell.actors.kit.timers import TimerHeap

if TYPE_CHECKING:
    from stepwell.actors.kit.pooled import PooledActor
    from stepwell.actors.kit.reply import Reply
    from stepwell.core.clock import Clock

__all__ = ["NO_TURN_LOG", "TURN_MESSAGES_MAX", "OnDeadLetter", "Scheduler", "TurnLog"]

TURN_MESSAGES_MAX = 64

A = TypeVar("A", bound="PooledActor")

OnDeadLetter: TypeAlias = Callable[[object, str], None]
"""Told (message, name of the actor it was for), on the thread that found out."""


class TurnLog(Protocol):
    """Is told at each turn who is at work. Called on the thread that runs the actors; must cost next to nothing."""

    def scheduler_is_here(self) -> None:
        """The calling thread is the one that runs the actors."""
        ...

    def turn(self, name: str, since: float) -> None:
        """The actor `name` is at work since that second of the monotonic clock."""
        ...

    def idle(self) -> None:
        """Nobody is at work."""
        ...


class _NoTurnLog:
    def scheduler_is_here(self) -> None:
        return

    def turn(self, name: str, since: float) -> None:
        return

    def idle(self) -> None:
        return


NO_TURN_LOG: Final = _NoTurnLog()


class Scheduler(ABC):
    """Starts pooled actors, gives them turns, and knows what could not be delivered.

    `on_crash(name, error, traceback text)` hears of every failure that no living supervisor hears of;
    `on_dead_letter(message, name)` of every message to an actor that was gone. Neither may raise.
    """

    def __init__(
        self,
        clock: Clock,
        enqueue: Callable[[Cell], None],
        on_crash: OnCrash | None,
        on_dead_letter: OnDeadLetter | None,
    ) -> None:
        self.clock = clock
        self.enqueue = enqueue
        self.timer_heap = TimerHeap(clock)
        self.undelivered = 0
        """Messages that no actor handled, since the start."""
        self._on_crash = on_crash or _log_crash
        self._on_dead_letter = on_dead_letter
        self._living: dict[Cell, None] = {}
        self._ended = False
        self._lock = threading.Lock()

    @property
    def living(self) -> list[str]:
        """The names of all actors that are not stopped, in the order of their spawn."""
        return [cell.name for cell in list(self._living)]

    def spawn(self, actor_class: type[A], *args: object, name: str, supervisor: AnyRef | None = None) -> PooledRef[A]:
        """Start `actor_class(*args)`, from any thread; it is built and `on_start`ed in its first turn.

        So nothing that its code raises is raised here: it goes to the supervisor. RuntimeError if the scheduler
        has stopped.
        """
        cell = Cell(self, name, args, supervisor)
        ref = PooledRef(actor_class, cell)
        self._living[cell] = None
        # Looked at after the entry is made: whoever ends the scheduler sets the flag first and then closes all entries.
        if self._ended:
            cell.abandon()
            raise RuntimeError(f"{name} can't be started: its scheduler has stopped")
        cell.begin(ref)
        return ref

    @abstractmethod
    def refuse_blocking(self, what: str) -> None:
        """Raise `BlockingCallRefused` where `what` would block the thread that runs the actors."""

    @abstractmethod
    def before_waiting(self, reply: Reply) -> None:
        """Called before somebody waits for `reply`."""

    def dead_letter(self, message: object, name: str) -> None:
        """Count a message that the actor `name` will not handle."""
        if isinstance(message, ChildFailed):
            self._nobody_hears(message)
            return
        with self._lock:
            self.undelivered += 1
        if self._on_dead_letter is not None:
            self._on_dead_letter(message, name)

    def child_failed(self, failure: ChildFailed, supervisor: AnyRef | None) -> None:
        """Bring a failure to the supervisor; from one that is gone it comes back as a dead letter."""
        if supervisor is None:
            self._nobody_hears(failure)
        else:
            supervisor.tell(failure)

    def forget(self, cell: Cell) -> None:
        """The cell is closed."""
        self._living.pop(cell, None)

    def _nobody_hears(self, failure: ChildFailed) -> None:
        for message in failure.unhandled:
            self.dead_letter(message, failure.name)
        self._on_crash(failure.name, failure.error, failure.traceback)

    def _end(self, close: Callable[[Cell], object]) -> None:
        """Let no actor start any more, and close the living ones, youngest first."""
        self._ended = True
        while self._living:
            for cell in reversed(list(self._living)):
                close(cell)


def _log_crash(name: str, error: BaseException, text: str) -> None:
    """What is done about a failure that nobody supervises where no `on_crash` is given."""
    logging.getLogger("stepwell.actors").critical("%s failed and has no supervisor: %r\n%s", name, error, text)
