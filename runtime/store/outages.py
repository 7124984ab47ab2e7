"""Masters that did not answer: how long to leave each alone, so that one that hangs does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from stepwell.store.flight import LinkDown
from stepwell.store.slots import Address

__all__ = ["Outages"]

FIRST_SECONDS: Final = 0.25
MOST_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.2


class Outages:
    """Who failed last, and when each may be tried again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failed: dict[Address, tuple[float, float]] = {}  # (tried again from then on, the pause before)
        self._look_at = 0.0

    @property
    def all(self) -> Collection[Address]:
        """All that have failed and not answered since."""
        return self._failed.keys()

    def failed(self, master: Address) -> bool:
        """It could not be reached; False where that is known and it was not even tried."""
        now = self._monotonic()
        due, pause = self._failed.get(master, (0.0, FIRST_SECONDS / 2))
        if now < due:
            return False
        pause = min(pause * 2, MOST_SECONDS)
        self._failed[master] = (now + pause, pause)
        return True

    def clear(self, master: Address) -> None:
        """It has answered."""
        self._failed.pop(master, None)

    def must_prove(self, master: Address) -> bool:
        """Whether it has to answer a PING before anything else is sent. Raises LinkDown where it is left alone now."""
        if master not in self._failed:
            return False
        if self._monotonic() < self._failed[master][0]:
            raise LinkDown("it did not answer a moment ago", sent=False)
        return True

    def may_look(self) -> bool:
        """Whether to ask again who serves what, though nobody has told that it changed: now and then."""
        now = self._monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        return True
