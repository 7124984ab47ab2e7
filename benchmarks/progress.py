"""What a benchmark does just now, on stderr: which part, which round, how long it still takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from stepwell.cli.bars import Bar

__all__ = ["Progress", "say"]


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Tells how far a benchmark is.

    It is measured in parts of about the same length: `plan` says how many, `part` opens the next one. Until the first
    one has ended, `expected` seconds are believed. On `bar` are the parts that have ended.
    """

    def __init__(
        self,
        name: str,
        expected: float = 0.0,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        bar: Bar | None = None,
    ) -> None:
        self._name = name
        self._expected = expected
        self._out = out or sys.stderr
        self._clock = clock
        self._bar = bar
        self._began = clock()
        self._planned_at = self._began
        self._parts = 0
        self._begun = 0

    def plan(self, parts: int) -> None:
        """So many parts are to come."""
        self._parts, self._begun = parts, 0
        self._planned_at = self._clock()
        if self._bar is not None:
            self._bar.again(self._name, parts)

    def part(self, what: str) -> None:
        """The next part begins: `what` it does."""
        left = self._left()
        if self._bar is not None and self._begun:
            self._bar.step()
        self._begun += 1
        number = f"{self._begun}/{self._parts} " if self._parts else ""
        self._say(f"{number}{what}{f'; about {left:.0f} s left' if left else ''}")

    def tell(self, what: str) -> None:
        """Something worth knowing that is no part of its own."""
        self._say(what)

    def _left(self) -> float:
        now = self._clock()
        if self._begun and self._parts:
            return (now - self._planned_at) / self._begun * max(0, self._parts - self._begun)
        return max(0.0, self._expected - (now - self._began))

    def _say(self, text: str) -> None:
        print(f"{self._name} {self._clock() - self._began:4.0f} s: {text}", file=self._out, flush=True)
