"""Finding executions: which lists hold those that are wanted, and the newest first out of many lists."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from stepwell.core.status import STATUSES
from stepwell.store.keys import Keys, PartitionKeys
from stepwell.store.lists import attribute_key, error_key
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import number, scored
from stepwell.store.requests import Command

__all__ = ["Listed", "Merge", "Wanted", "choices", "lists_of_choice", "sizes"]

STATUS: Final = "s"
READ_MOST: Final = 1000


class Listed(msgspec.Struct, frozen=True, order=True):
    """An execution on a list, and by which time (ms) it stands there. What is listed later is the larger one."""

    at_ms: int
    execution_id: str


class Wanted(msgspec.Struct, frozen=True):
    """Which executions are looked for; what is empty or None does not matter. Attributes are name and text of the
    value, in the order of names; times are in ms, and both belong to what is wanted."""

    status: str | None = None
    flow: str | None = None
    error: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None


def choices(wanted: Wanted) -> list[str]:
    """By which lists those wanted can be found, each one enough: `s` status, `e` error, `f` flow, `a0` an attribute."""
    found = [f"a{place}" for place in range(len(wanted.attributes))]
    found += ["e"] if wanted.error is not None else []
    found += ["f"] if wanted.flow is not None else []
    return [*found, STATUS] if wanted.status is not None or not found else found


def lists_of_choice(keys: Keys, wanted: Wanted, choice: str) -> list[str]:
    """The lists of all partitions to read. Raises ValueError for a choice that there is not."""
    if choice not in choices(wanted):
        raise ValueError(f"no such choice: {choice!r:.20}")
    if choice == STATUS:
        statuses = STATUSES if wanted.status is None else (wanted.status,)
        return [part.by[status] for part in keys.parts for status in statuses]
    return [_list(part, wanted, choice) for part in keys.parts]


def _list(part: PartitionKeys, wanted: Wanted, choice: str) -> str:
    if choice == "f":
        return part.flow + (wanted.flow or "")
    if choice == "e":
        return error_key(part, wanted.error or "")
    return attribute_key(part, *wanted.attributes[int(choice[1:])])


def sizes(keys: Keys, wanted: Wanted) -> Query[dict[str, int]]:
    """By choice: how many executions its lists hold within the times wanted."""
    lists = {choice: lists_of_choice(keys, wanted, choice) for choice in choices(wanted)}
    least, most = _bounds(wanted)
    commands: list[Command] = [["ZCOUNT", key, least, most] for named in lists.values() for key in named]

    def parse(raws: Raws) -> dict[str, int]:
        found = iter(raws)
        return {choice: sum(number(next(found)) for _ in named) for choice, named in lists.items()}

    return Query(commands, parse)


def _bounds(wanted: Wanted) -> tuple[str, str]:
    least = "(-inf" if wanted.since_ms is None else str(wanted.since_ms)
    return least, "(+inf" if wanted.until_ms is None else str(wanted.until_ms)


class _Source:
    """One list, read down to `last`."""

    __slots__ = ("is_read", "key", "last", "size")

    def __init__(self, key: str, last: Listed | None, size: int) -> None:
        self.key = key
        self.last = last
        self.size = size
        self.is_read = False  # to its end


class Merge:
    """The newest first out of many lists, each of which is read no further than needed.

    Ask `missing(count)` until it is empty, carrying its commands to the server and their replies to `take`; then `give`
    gives so many. What leaves or comes to a list meanwhile makes nobody else be skipped or given twice.
    """

    def __init__(self, lists: Sequence[str], wanted: Wanted, after: Listed | None, at_once: int) -> None:
        self._least, self._most = _bounds(wanted)
        self._until = wanted.until_ms
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
        return [self._command(source) for source in self._asked]

    def take(self, raws: Iterable[object]) -> None:
        """The replies to what `missing` asked last."""
        for source, raw in zip(self._asked, raws, strict=True):
            found = [Listed(int(at), execution_id) for execution_id, at in scored(raw) if math.isfinite(at)]
            last = source.last
            fresh = found if last is None else [each for each in found if each < last]
            source.is_read = len(found) < source.size
            # Where all that was read stands by the time of the last one, it has to reach behind that.
            source.size = 2 * source.size if not fresh else max(source.size, min(2 * source.size, READ_MOST))
            if fresh:
                source.last = fresh[-1]
                self._pool += fresh
        self._pool.sort(reverse=True)

    def give(self, count: int) -> list[Listed]:
        """The next ones, at most `count`, each id once."""
        given, self._pool = self._pool[:count], self._pool[count:]
        fresh = [each for each in given if each.execution_id not in self._known]
        self._known.update(each.execution_id for each in fresh)
        return fresh

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
        pool = self._pool
        last = pool[count - 1] if len(pool) >= count else None
        return [
            source
            for source in self._sources
            if not source.is_read and (last is None or source.last is None or source.last > last)
        ]

    def _command(self, source: _Source) -> Command:
        most = self._most
        if source.last is not None and (self._until is None or source.last.at_ms <= self._until):
            most = str(source.last.at_ms)
        # From the time of the last one on, and not behind it: others may stand there by the same time.
        return ["ZREVRANGEBYSCORE", source.key, most, self._least, "WITHSCORES", "LIMIT", 0, source.size]
