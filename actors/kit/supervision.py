"""What a supervisor is told when a child fails, and how often it may start it again."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from stepwell.actors.kit.ref import AnyRef

__all__ = ["ChildFailed", "OnCrash", "RestartIntensity", "Where", "traceback_text"]

Where: TypeAlias = Literal["constructor", "on_start", "on_receive", "timer", "on_stop"]

OnCrash: TypeAlias = Callable[[str, BaseException, str], None]
"""Told (name, error, traceback text) when nobody supervises what failed."""


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """A child raised and is stopped; its supervisor decides what becomes of its work.

    `message` is what it was working on (None in constructor, on_start and on_stop), `unhandled` what was still
    in its mailbox, oldest first. Whoever asked has been answered with `pykka.ActorDeadError` already, and timers
    died with the child: both are not in `unhandled`.
    """

    name: str
    ref: AnyRef
    error: BaseException
    traceback: str
    where: Where
    message: object
    unhandled: list[object]


class RestartIntensity:
    """At most `max_restarts` restarts of one key inside any `window_seconds`; the next failure is refused.

    With the default of 2 the third failure inside a minute is the one that must not be restarted.
    """

    def __init__(self, max_restarts: int = 2, window_seconds: float = 60.0) -> None:
        if max_restarts < 0 or not window_seconds > 0:
            raise ValueError(
                f"expected max_restarts >= 0 and window_seconds > 0, got: {max_restarts} and {window_seconds}"
            )
        self.max_restarts = max_restarts
        self.window_seconds = window_seconds
        self._failures: dict[str, deque[float]] = {}

    def record(self, key: str, now_monotonic: float) -> bool:
        """Count a failure of `key`; True: it may be restarted, False: the limit is reached.

        `now_monotonic` is in seconds and must not decrease from call to call.
        """
        oldest = now_monotonic - self.window_seconds
        self._forget_before(oldest)
        # Popped and put back: the dict stays ordered by last failure, which is what _forget_before relies on.
        failures = self._failures.pop(key, None) or deque()
        while failures and failures[0] <= oldest:
            failures.popleft()
        failures.append(now_monotonic)
        if len(failures) > self.max_restarts + 1:
            failures.popleft()
        self._failures[key] = failures
        return len(failures) <= self.max_restarts

    def _forget_before(self, oldest: float) -> None:
        while self._failures:
            key = next(iter(self._failures))
            if self._failures[key][-1] > oldest:
                return
            del self._failures[key]

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._failures)


def traceback_text(error: BaseException) -> str:
    """The traceback as Python would print it, notes and causes included."""
    return "".join(traceback.format_exception(error))
