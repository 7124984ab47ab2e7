"""The first executions out of many lists, each of which is read no further than needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from stepwell.store.finding import Wanted, times_of
from stepwell.store.replies import scored
from stepwell.store.requests import Command

__all__ = ["LatestFirst", "Listed", "Merge", "Order", "SoonestFirst"]

READ_MOST: Final = 1000


class Listed(msgspec.Struct, frozen=True, order=True):
    """An execution on a list, and by which time (ms) it stands there. What is listed later is the larger one."""

    at_ms: int
    execution_id: str


class Order(Protocol):
    """Which of those on a list comes first."""

    def sort(self, listed: list[Listed]) -> None:
        """Bring them into this order."""

    def comes_before(self, one: Listed, other: Listed) -> bool:
        """Whether one is given before the other."""

    def command(self, key: str, last: Listed | None, size: int) -> Command:
        """Reads so many of a list, from the time of the last one on: others may stand there by the same time."""


class LatestFirst:
    """By the time at which they stand there, backwards, of the times wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._least, self._most = times_of(wanted)
        self._until = wanted.until_ms

    def sort(self, listed: list[Listed]) -> None:
        listed.sort(reverse=True)

    def comes_before(self, one: Listed, other: Listed) -> bool:
        return one > other

    def command(self, key: str, last: Listed | None, size: int) -> Command:
        most = self._most
        if last is not None and (self._until is None or last.at_ms <= self._until):
            most = str(last.at_ms)
        return ["ZREVRANGEBYSCORE", key, most, self._least, "WITHSCORES", "LIMIT", 0, size]


class SoonestFirst:
    """By the time at which they stand there, forwards."""

    def sort(self, listed: list[Listed]) -> None:
        listed.sort()

    def comes_before(self, one: Listed, other: Listed) -> bool:
        return one < other

    def command(self, key: str, last: Listed | None, size: int) -> Command:
        least = "(-inf" if last is None else str(last.at_ms)
        return ["ZRANGEBYSCORE", key, least, "(+inf", "WITHSCORES", "LIMIT", 0, size]


class _Source:
    """One list, read down to `last`."""

    __slots__ = ("is_read", "key", "last", "size")

    def __init__(self, key: str, last: Listed | None, size: int) -> None:
        self.key = key
        self.last = last
        self.size = size
        self.is_read = False  # to its end


class Merge:
    """The first in an order out of many lists, each of which is read no further than needed.

    Ask `missing(count)` until it is empty, carrying its commands to the server and their replies to `take`; then `give`
    gives so many. What leaves or comes to a list meanwhile makes nobody else be skipped or given twice.
    """

    def __init__(self, lists: Sequence[str], order: Order, after: Listed | None, at_once: int) -> None:
        self._order = order
        self._sources = [_Source(key, after, at_once) for key in lists]
        self._unread = self._sources
        self._asked: list[_Source] = []
        self._pool: list[Listed] = []
        self._known: set[str] = set()

    def missing(self, count: int) -> list[Command]:
        """What has to be read before `count` can be given: nothing, if they can, or if there are no more."""
        if self._unread:
            self._asked, self._unread = self._unread, []
        else:
            self._asked = self._in_the_way(count)
        return [self._order.command(source.key, source.last, source.size) for source in self._asked]

    def take(self, raws: Iterable[object]) -> None:
        """The replies to what `missing` asked last."""
        comes_before = self._order.comes_before
        for source, raw in zip(self._asked, raws, strict=True):
            found = [Listed(int(at), execution_id) for execution_id, at in scored(raw) if math.isfinite(at)]
            last = source.last
            fresh = found if last is None else [each for each in found if comes_before(last, each)]
            source.is_read = len(found) < source.size
            # Where all that was read stands by the time of the last one, it has to reach behind that.
            source.size = 2 * source.size if not fresh else max(source.size, min(2 * source.size, READ_MOST))
            if fresh:
                source.last = fresh[-1]
                self._pool += fresh
        self._order.sort(self._pool)

    def give(self, count: int) -> list[Listed]:
        """The next ones, at most `count`, each id once."""
        given, self._pool = self._pool[:count], self._pool[count:]
        fresh: dict[str, Listed] = {}
        for each in given:
            if each.execution_id not in self._known:
                fresh.setdefault(each.execution_id, each)
        self._known.update(fresh)
        return list(fresh.values())

    def put_back(self, left: Sequence[Listed]) -> None:
        """Those of the last ones given that nobody has looked at."""
        self._known.difference_update(each.execution_id for each in left)
        self._pool[:0] = left

    @property
    def over(self) -> bool:
        """Whether all has been given."""
        return not self._pool and not self._unread and all(source.is_read for source in self._sources)

    def _in_the_way(self, count: int) -> list[_Source]:
        """Lists that may still hold what comes before the last of the next `count`."""
        pool, before = self._pool, self._order.comes_before
        last = pool[count - 1] if len(pool) >= count else None
        return [
            source
            for source in self._sources
            if not source.is_read and (last is None or source.last is None or before(source.last, last))
        ]
