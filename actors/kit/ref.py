"""The address of a pooled actor: what others hold, from any thread, also after the actor has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar, overload

import pykka

from stepwell.actors.kit.cell import Asked, Cell, StopAsked
from stepwell.actors.kit.reply import Reply

if TYPE_CHECKING:
    from stepwell.actors.kit.pooled import PooledActor

__all__ = ["AnyRef", "PooledRef"]

A = TypeVar("A", bound="PooledActor")


class PooledRef(pykka.ActorRef[A]):
    """A `pykka.ActorRef` that is cheap, never raises on `tell`, and answers every `ask`."""

    __slots__ = ("_cell", "actor_class", "actor_urn", "name")

    def __init__(self, actor_class: type[A], cell: Cell) -> None:
        self.actor_class = actor_class
        self.actor_urn = cell.name
        self.name = cell.name
        self._cell = cell

    def __str__(self) -> str:
        return f"{self.actor_class.__name__} ({self.name})"

    def is_alive(self) -> bool:
        """False once the actor has stopped or failed; also True before it has started."""
        return not self._cell.closed

    @property
    def waiting(self) -> int:
        """How many messages wait in its mailbox. From any thread."""
        return self._cell.queue.qsize()

    def tell(self, message: object) -> None:
        """Send without waiting. If the actor is gone, the scheduler counts the message as undelivered."""
        self._cell.put(message)

    @overload
    def ask(self, message: object, *, block: Literal[False], timeout: float | None = None) -> Reply: ...
    @overload
    def ask(self, message: object, *, block: Literal[True], timeout: float | None = None) -> Any: ...
    @overload
    def ask(self, message: object, *, block: bool = True, timeout: float | None = None) -> Any: ...
    def ask(self, message: object, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send, and get what `on_receive` returns: waiting at most `timeout` seconds, or as a future.

        An actor that raises fails, like with `tell`, and the asker gets the error too; `pykka.ActorDeadError` if it
        stopped before it could answer. On the thread that runs the actors a blocking ask is refused, unsent.
        """
        scheduler = self._cell.scheduler
        if block:
            scheduler.refuse_blocking(f"ask({type(message).__name__}) to {self.name}")
        reply = Reply(scheduler)
        self._cell.put(Asked(message, reply))
        return reply.get(timeout=timeout) if block else reply

    @overload
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> Reply: ...
    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Reply: ...
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Reply:
        """Ask it to stop after what is already in its mailbox; True once it is closed, False if it was before."""
        scheduler = self._cell.scheduler
        if block:
            scheduler.refuse_blocking(f"stop() of {self.name}")
        reply = Reply(scheduler)
        if self._cell.closed:
            reply.set(False)
        else:
            self._cell.put(StopAsked(reply))
        return bool(reply.get(timeout=timeout)) if block else reply

    def proxy(self) -> NoReturn:
        """Not for pooled actors: a proxy looks into the actor from the caller's thread."""
        raise TypeError(f"{self.name} has no proxy: tell or ask it a message")


AnyRef: TypeAlias = PooledRef[Any]
"""The address of an actor of whatever class."""
