"""The future behind `ask`: from a scheduler's own thread it refuses to block instead of hanging for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykka

if TYPE_CHECKING:
    from pykka._types import OptExcInfo

    from stepwell.actors.kit.scheduler_base import Scheduler

__all__ = ["BlockingCallRefused", "Reply"]


class BlockingCallRefused(RuntimeError):
    """Something that waits was called on the thread that runs the actors. Tell, and get the answer as a message."""


class Reply(pykka.ThreadingFuture[Any]):
    """An answer to come from an actor of `scheduler`; None for what Pykka derives from another reply (`map`)."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        super().__init__()
        self.answered = False
        self._scheduler = scheduler

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait at most `timeout` seconds for the answer, or for ever.

        Raises what the actor raised, `pykka.ActorDeadError` if it stopped before answering, `pykka.Timeout`, and
        `BlockingCallRefused` on the thread that runs the actors.
        """
        if self._scheduler is not None:
            self._scheduler.before_waiting(self)
        return super().get(timeout=timeout)

    def set(self, value: object = None) -> None:
        """Answer with `value`."""
        super().set(value)
        self.answered = True

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Answer with an exception, as `sys.exc_info()` gives it (None: the one being handled)."""
        super().set_exception(exc_info)
        self.answered = True

    def fail(self, error: BaseException) -> None:
        """Answer with this error."""
        self.set_exception((type(error), error, error.__traceback__))
