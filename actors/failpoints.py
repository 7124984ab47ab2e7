"""Failpoints: named places in the product where a test stops it, crashes it or changes the world around it.

A worker is given `NO_FAILPOINTS` unless a test gives it something else: then nothing here costs more than a look at
an attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["AFTER_REPLY", "BEFORE_SEND", "NO_FAILPOINTS", "FailAt", "Failpoints"]

BEFORE_SEND: Final = "commit.before_send"
"""A commit (or restore) is about to be sent; reached again when it is sent again."""
AFTER_REPLY: Final = "commit.after_reply"
"""The store has answered a commit; nobody has acted on that yet."""


class Failpoints:
    """Told of each failpoint that is reached, on the thread that reached it. This one does nothing."""

    active = False

    def reached(self, name: str) -> None:
        """The product has come to the failpoint `name`."""


NO_FAILPOINTS: Final = Failpoints()


class FailAt(Failpoints):
    """Calls `act()` when the failpoint `name` is reached for the `number`-th time (from 1).

    `counts` says how often each was reached, so that a first run can find out how many there are.
    """

    active = True

    def __init__(self, name: str = "", number: int = 0, act: Callable[[], None] | None = None) -> None:
        self._name = name
        self._number = number
        self._act = act
        self.counts: dict[str, int] = {}

    def reached(self, name: str) -> None:
        """Count, and act if this is the one."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if self._act is not None and name == self._name and count == self._number:
            self._act()
