"""A queue that is fair to its keys: in order within a key, round robin over keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items wait in one line per key, and the keys take turns. A key that may not go on steps out of the round until it
    is unblocked, so that those who may go on don't pay for the look at those who may not."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}
        self._round: deque[str] = deque()
        self._blocked: set[str] = set()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """All items, line by line."""
        return (item for line in self._lines.values() for item in line)

    def heads(self, wanted: Callable[[T], bool]) -> dict[str, T]:
        """The first of each line that is wanted."""
        firsts = {key: next(filter(wanted, line), None) for key, line in self._lines.items()}
        return {key: item for key, item in firsts.items() if item is not None}

    def push(self, key: str, item: T) -> None:
        """Add an item at the end of the line of `key`."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            self._round.append(key)
        line.append(item)
        self._length += 1

    def pop(self, may: Callable[[str], bool] | None = None) -> T | None:
        """The next item of the key whose turn it is. A key for which `may` says no is blocked; None: nobody may."""
        while self._round:
            key = self._round.popleft()
            if may is not None and not may(key):
                self._blocked.add(key)
                continue
            line = self._lines[key]
            item = line.popleft()
            self._length -= 1
            if line:
                self._round.append(key)
            else:
                del self._lines[key]
            return item
        return None

    def unblock(self, key: str) -> None:
        """That key may go on: it joins the end of the round."""
        if key in self._blocked:
            self._blocked.discard(key)
            self._round.append(key)

    def unblock_all(self) -> None:
        """All keys may go on."""
        self._round.extend(key for key in self._lines if key in self._blocked)
        self._blocked.clear()

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Throw away what is not wanted any more."""
        items = [(key, item) for key, line in self._lines.items() for item in line if wanted(item)]
        blocked, order = self._blocked, self._round
        self._lines, self._round, self._blocked, self._length = {}, deque(), set(), 0
        for key, item in items:
            self.push(key, item)
        self._blocked = {key for key in blocked if key in self._lines}
        self._round = deque(key for key in order if key in self._lines)
