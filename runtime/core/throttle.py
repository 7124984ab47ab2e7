"""How many lines of one kind are written: the first few of each window of time; the rest is counted, exactly.

Pure: the caller brings the time (monotonic seconds). Not for several threads at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

__all__ = ["FIRST", "FIRST_OF_ENDS", "WINDOW_SECONDS", "LeftOut", "Throttle"]

FIRST: Final = 10
FIRST_OF_ENDS: Final = 1000
"""Of lines that each tell of something else that has ended badly: they are no repeats."""
WINDOW_SECONDS: Final = 5.0

K = TypeVar("K", bound=Hashable)


class LeftOut(msgspec.Struct, Generic[K], frozen=True):
    """So many lines of a kind were not written in so many seconds; `example` tells the last of them."""

    key: K
    count: int
    seconds: float
    example: str = ""


class _Window:
    __slots__ = ("began", "example", "left_out", "room")

    def __init__(self, began: float, room: int) -> None:
        self.began = began
        self.room = room
        self.left_out = 0
        self.example = ""


class Throttle(Generic[K]):
    """A kind's window begins with its first line and is forgotten when it ends, so memory does not grow."""

    def __init__(self, first: int = FIRST, seconds: float = WINDOW_SECONDS) -> None:
        self._first = first
        self._seconds = seconds
        self._windows: dict[K, _Window] = {}

    def admits(self, key: K, now: float, example: str = "", first: int | None = None) -> bool:
        """Whether this line is written; `example` stands for it if it is not. Ask for what is `over` first: a window
        that has ended counts on else. `first`: of lines of this kind so many are written, and not as many as usual."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now, self._first if first is None else first)
        if window.room:
            window.room -= 1
            return True
        window.left_out += 1
        window.example = example
        return False

    def over(self, now: float) -> list[LeftOut[K]]:
        """What was left out in windows that have ended by now, the earliest first."""
        found: list[LeftOut[K]] = []
        # They stand in the order of their beginnings: the first that has not ended is the last to look at.
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now - window.began < self._seconds:
                break
            del self._windows[key]
            self._tell(key, window, now, found)
        return found

    def flush(self, now: float) -> list[LeftOut[K]]:
        """What was left out in all windows: they end now."""
        found: list[LeftOut[K]] = []
        for key, window in self._windows.items():
            self._tell(key, window, now, found)
        self._windows.clear()
        return found

    def _tell(self, key: K, window: _Window, now: float, found: list[LeftOut[K]]) -> None:
        if window.left_out:
            found.append(LeftOut(key, window.left_out, now - window.began, window.example))
