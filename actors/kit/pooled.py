"""What the actor classes derive from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

import pykka

from stepwell.actors.kit.cell import Cell
from stepwell.actors.kit.ref import AnyRef, PooledRef
from stepwell.actors.kit.timers import Timers

if TYPE_CHECKING:
    from stepwell.actors.kit.scheduler_base import Scheduler

__all__ = ["PooledActor"]


class PooledActor(pykka.Actor):
    """An actor without a thread of its own, started by `scheduler.spawn(Class, *args, name=...)`.

    Subclasses write `__init__(self, *args)`, `on_start()`, `on_receive(message)`, `on_stop()` and, if they hold
    what must be let go of after an error, `on_failure(type, value, traceback)`. All of them run on the scheduler's
    thread and must not block. Inside `__init__` the actor already has its `scheduler`, `name` and `actor_ref`.
    Whatever one of them raises stops this actor and goes to its supervisor as `ChildFailed`; `on_stop` is called
    only where nothing was raised before.
    """

    __slots__ = ("_actor_ref", "_cell")

    _cell: Cell
    _actor_ref: AnyRef

    def __init__(self, *_args: object) -> None:
        """Pykka's own fields are not wanted: see `bind`."""

    def bind(self, cell: Cell, ref: AnyRef) -> None:
        """Called by the kit before `__init__`."""
        self._cell = cell
        self._actor_ref = ref

    def __str__(self) -> str:
        return f"{type(self).__name__} ({self.name})"

    @property
    def name(self) -> str:
        """The name given at spawn, for people: `execution:abc`."""
        return self._cell.name

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that runs this actor; its `clock` is the actor's clock."""
        return self._cell.scheduler

    @property
    def actor_ref(self) -> PooledRef[Self]:
        """This actor's own address."""
        return self._actor_ref

    @property
    def timers(self) -> Timers:
        """This actor's timers; they die with it."""
        return Timers(self._cell)

    def stop(self) -> None:
        """Stop when the current message is done; for the actor itself (others use `ref.stop`)."""
        self._cell.stopping = True

    def on_receive(self, message: Any) -> object:
        """Handle one message; what it returns is the answer to an `ask`."""
        raise TypeError(f"{self} does not know what to do with {message!r}")

    @classmethod
    def start(cls, *_args: object, **_kwargs: object) -> NoReturn:
        """Not for pooled actors, which need a scheduler."""
        raise TypeError(f"start {cls.__name__} with scheduler.spawn({cls.__name__}, ..., name=...)")

    @staticmethod
    def _create_actor_inbox() -> NoReturn:
        raise TypeError("a pooled actor's mailbox is its cell")

    @staticmethod
    def _create_future() -> NoReturn:
        raise TypeError("a pooled actor's futures are made by its ref")

    def _start_actor_loop(self) -> NoReturn:
        raise TypeError("a pooled actor is run by its scheduler")
