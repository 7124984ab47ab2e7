"""An actor's mailbox and life: how it gets turns, fails, and is closed without losing a message.

Any thread may `put`; everything else happens on the scheduler's thread. The `idle` lock is the scheduled bit:
held means "on the run queue, at work, or closed". A turn that ends releases it and *then* looks at the queue once
more, since a message may have come between its last look and the release. Closing sets `closed` and *then* drains;
a `put` that comes later sees `closed` and drains again. So each message is handled, or given back, or counted.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import pykka

from stepwell.actors.kit.supervision import ChildFailed, Where, traceback_text

if TYPE_CHECKING:
    from stepwell.actors.kit.pooled import PooledActor
    from stepwell.actors.kit.ref import AnyRef
    from stepwell.actors.kit.reply import Reply
    from stepwell.actors.kit.scheduler_base import Scheduler
    from stepwell.actors.kit.timers import Timer

__all__ = ["Asked", "Cell", "Parcel", "StopAsked"]

NO_TIMERS: dict[str, Timer] = {}
"""Of all actors that have started none: most have none, and an empty dictionary for each would cost."""


class Parcel:
    """What lies in a mailbox and is more than a bare message. No ABC: its `isinstance` would cost each message."""

    __slots__ = ("message",)
    where: Where = "on_receive"

    def __init__(self, message: object) -> None:
        self.message = message

    def open(self, cell: Cell, actor: PooledActor) -> None:
        """Let the actor handle it."""
        raise NotImplementedError

    def give_back(self, name: str) -> None:
        """The actor `name` is closed and will not handle it: answer whoever waits."""
        raise NotImplementedError


class Asked(Parcel):
    """A message whose sender waits for the answer."""

    __slots__ = ("reply",)

    def __init__(self, message: object, reply: Reply) -> None:
        super().__init__(message)
        self.reply = reply

    def open(self, cell: Cell, actor: PooledActor) -> None:
        try:
            answer = actor.on_receive(self.message)
        except Exception as error:
            self.reply.fail(error)
            raise
        except BaseException as error:
            # A SystemExit must not end the asker's thread as well.
            dead = pykka.ActorDeadError(f"{cell.name} failed while handling the message: {error!r}")
            dead.__cause__ = error
            self.reply.fail(dead)
            raise
        self.reply.set(answer)

    def give_back(self, name: str) -> None:
        self.reply.fail(pykka.ActorDeadError(f"{name} stopped before handling the message"))


class StopAsked(Parcel):
    """A request from outside to stop, answered when the actor is closed."""

    __slots__ = ("reply",)

    def __init__(self, reply: Reply) -> None:
        super().__init__(None)
        self.reply = reply

    def open(self, cell: Cell, actor: PooledActor) -> None:
        actor.stop()
        cell.queue.put(self)

    def give_back(self, name: str) -> None:
        self.reply.set(True)


class Cell:
    """One per actor, from spawn until its last reference goes. Made by `Scheduler.spawn` only."""

    __slots__ = (
        "_args",
        "_enqueue",
        "_idle",
        "_ref",
        "_supervisor",
        "actor",
        "closed",
        "name",
        "queue",
        "scheduler",
        "stopping",
        "timers",
    )

    def __init__(self, scheduler: Scheduler, name: str, args: tuple[object, ...], supervisor: AnyRef | None) -> None:
        self.scheduler = scheduler
        self.name = name
        self.queue: SimpleQueue[object] = SimpleQueue()
        self.actor: PooledActor | None = None
        self.timers = NO_TIMERS
        self.closed = False
        self.stopping = False
        self._args = args
        self._supervisor = supervisor
        self._ref: AnyRef | None = None
        self._enqueue = scheduler.enqueue
        self._idle = threading.Lock()
        self._idle.acquire()

    def begin(self, ref: AnyRef) -> None:
        """Give it its first turn, in which the actor is built and started."""
        self._ref = ref
        self._enqueue(self)

    def put(self, item: object) -> None:
        """Add to the mailbox, from any thread. Never blocks, never raises."""
        self.queue.put(item)
        if self._idle.acquire(False):
            self._enqueue(self)
        elif self.closed:
            self._count_undelivered(self._drain())

    def take_turn(self, limit: int) -> int:
        """Handle at most `limit` messages; how many were (the start counts as one)."""
        actor = self.actor
        if actor is None:
            actor = self._start()
            if actor is None:
                return 1
        queue = self.queue
        handled = 0
        while handled < limit and not self.stopping and not queue.empty():
            item = queue.get_nowait()
            handled += 1
            try:
                if isinstance(item, Parcel):
                    item.open(self, actor)
                else:
                    actor.on_receive(item)
            except BaseException as error:
                if isinstance(item, Parcel):
                    self._fail(error, item.where, item.message)
                else:
                    self._fail(error, "on_receive", item)
                return handled
        if self.stopping:
            self.stop()
        else:
            self._idle.release()
            if not queue.empty() and self._idle.acquire(False):
                self._enqueue(self)
        return handled

    def stop(self) -> None:
        """End the actor in good order: `on_stop`, then what is left in the mailbox is given back or counted."""
        if self.actor is not None:
            try:
                self.actor.on_stop()
            except BaseException as error:
                self._fail(error, "on_stop", None)
                return
        self.abandon()

    def abandon(self) -> None:
        """End the actor without a word to it; what is left in the mailbox is given back or counted."""
        self._count_undelivered(self._close())

    def _close(self) -> list[object]:
        for timer in self.timers.values():
            timer.cancel()
        self.timers = NO_TIMERS
        self.closed = True
        # Held for ever from now on; between two turns it was free, and a late `put` would wait for a turn.
        self._idle.acquire(False)
        unhandled = self._drain()
        self.scheduler.forget(self)
        self.actor = None
        self._ref = None
        self._args = ()
        return unhandled

    def _start(self) -> PooledActor | None:
        ref = self._ref
        if ref is None:
            return None
        where: Where = "constructor"
        try:
            actor_class: type[PooledActor] = ref.actor_class
            actor = actor_class.__new__(actor_class)
            actor.bind(self, ref)
            actor_class.__init__(actor, *self._args)
            self._args = ()
            self.actor = actor
            where = "on_start"
            actor.on_start()
        except BaseException as error:
            self._fail(error, where, None)
            return None
        return actor

    def _fail(self, error: BaseException, where: Where, message: object) -> None:
        if self.actor is not None:
            try:
                self.actor.on_failure(type(error), error, error.__traceback__)
            except BaseException as second:
                error.add_note(f"then on_failure of {self.name} raised {second!r}")
        ref = self._ref
        unhandled = self._close()
        assert ref is not None, f"{self.name} failed after it was closed"
        failure = ChildFailed(self.name, ref, error, traceback_text(error), where, message, unhandled)
        self.scheduler.child_failed(failure, self._supervisor)

    def _drain(self) -> list[object]:
        bare: list[object] = []
        while True:
            try:
                item = self.queue.get_nowait()
            except Empty:
                return bare
            if isinstance(item, Parcel):
                item.give_back(self.name)
            else:
                bare.append(item)

    def _count_undelivered(self, messages: list[object]) -> None:
        for message in messages:
            self.scheduler.dead_letter(message, self.name)
