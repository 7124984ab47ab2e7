"""Reading the events streams of many partitions: where one is in each, what was shown, and what is missing.

Streams are capped, servers are restarted and forget, connections break. After any trouble each stream is read again
from a little before, and what was shown already is left out: an entry may have come with a smaller id. What can't be
read any more is told as a `Gap`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from stepwell.core.eventlog import RawEvent, read_events
from stepwell.core.events import Event
from stepwell.store.keys import Keys
from stepwell.store.replies import Broken, Refused, entries_of, number, order, streams_of
from stepwell.store.requests import Command
from stepwell.store.scattered import START

__all__ = ["CUT", "KEPT", "LOST", "PAGE", "EventStreams", "Gap", "Seen"]

KEPT: Final = 10_000
"""Entries that a stream keeps at least; the scripts cut off what is older."""
PAGE: Final = 200
REMEMBERED: Final = 100
LAST_ONES: Final = 5

CUT: Final = "cut"
LOST: Final = "lost"

_Id: TypeAlias = tuple[int, int]
_Entry: TypeAlias = tuple[str, dict[str, bytes]]


class Seen(msgspec.Struct, frozen=True):
    """One event as it stands in a stream. `entry` is the stream's id, `at` the server's time (ms)."""

    partition: int
    entry: str
    at: int
    event: Event | RawEvent


class Gap(msgspec.Struct, frozen=True):
    """Events of a partition after `after` and before `before` (ids; "" where nothing is left) can't be shown.

    `why`: `cut` (the stream keeps only so many; some may have been cut off) or `lost` (Redis has lost its newest ones).
    """

    partition: int
    after: str
    before: str
    why: str


class _Stream:
    """One partition: what was read last, and the last ids that were shown."""

    __slots__ = ("_shown", "cursor", "floor", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.cursor = START
        self.floor = START
        self._shown: OrderedDict[str, int] = OrderedDict()

    def shows(self, entry_id: str, fields: dict[str, bytes]) -> bool:
        """Whether it is new; it counts as shown from now on."""
        told = hash(fields.get("e", b""))
        if order(entry_id) > order(self.cursor):
            self.cursor = entry_id
        if self._shown.get(entry_id) == told:
            return False
        self._shown[entry_id] = told
        if len(self._shown) > REMEMBERED:
            self.floor, _ = self._shown.popitem(last=False)
        return True

    def rewind(self, last: str) -> Gap | None:
        """Begin again before what was shown last, as the stream ends with `last` now."""
        if order(last) >= order(self.floor):
            self.cursor = self.floor
            return None
        if not self._shown:  # nothing is known to have been there
            self.cursor = self.floor = last
            return None
        gap = Gap(self.partition, self.cursor, "" if last == START else last, LOST)
        self.cursor = self.floor = last
        self._shown.clear()
        return gap


class EventStreams:
    """Makes the commands of each round and takes their replies; `ready` gives what can be shown, in the order of time.

    A round is: `lost_commands` where anything is `stale`, `read_commands`, then `head_commands` where a page was full.
    """

    def __init__(self, keys: Keys, partitions: Iterable[int]) -> None:
        self._keys = keys
        self._streams = {partition: _Stream(partition) for partition in partitions}
        self._by_key = {keys.events(partition): self._streams[partition] for partition in self._streams}
        self._asked: list[_Stream] = []
        self._full: list[tuple[_Stream, str]] = []
        self._waiting: list[tuple[_Id, int, Seen]] = []
        self._gaps: list[Gap] = []
        self.stale: set[int] = set()
        """Partitions that must be looked at from a little before: their server was away."""
        self.foreign: set[int] = set()
        """Partitions whose events key is of another type: a stranger's."""

    @property
    def keys(self) -> Keys:
        """The names of the namespace."""
        return self._keys

    @property
    def all_foreign(self) -> bool:
        """Whether no stream can be read at all."""
        return len(self.foreign) == len(self._streams)

    @property
    def foreign_keys(self) -> list[str]:
        """The keys of those."""
        return [self._keys.events(partition) for partition in sorted(self.foreign)]

    # Where to begin.

    def opening_commands(self) -> list[Command]:
        """What the streams end with."""
        return [["XREVRANGE", key, "+", "-", "COUNT", LAST_ONES] for key in self._by_key]

    def opened(self, raws: Sequence[object], since_ms: int | None) -> None:
        """Begin with what came at `since_ms` or later, but not after what is there now; None: with the oldest."""
        for stream, raw in zip(self._streams.values(), raws, strict=True):
            if isinstance(raw, Broken):
                self.foreign.add(stream.partition)
                continue
            if isinstance(raw, Refused):
                self.stale.add(stream.partition)
                if since_ms is not None:
                    stream.cursor = stream.floor = _before(f"{since_ms}-0")
                continue
            if since_ms is None:
                continue
            last_ones = entries_of(raw)[::-1]
            before = [entry for entry in last_ones if order(entry[0]) < (since_ms, 0)]
            if len(before) < len(last_ones):
                stream.cursor = stream.floor = _before(f"{since_ms}-0")
            if before:
                stream.floor = START if len(last_ones) < LAST_ONES else _before(before[0][0])
            for entry_id, fields in before:
                stream.shows(entry_id, fields)

    # One round.

    def lost_commands(self) -> list[Command]:
        """What the stale streams end with now."""
        self._asked = [self._streams[partition] for partition in sorted(self.stale)]
        return [["XREVRANGE", self._keys.events(each.partition), "+", "-", "COUNT", 1] for each in self._asked]

    def found_again(self, raws: Sequence[object]) -> None:
        """Those that answer are read again from a little before."""
        for stream, raw in zip(self._asked, raws, strict=True):
            if isinstance(raw, Refused | Broken):
                continue
            self.stale.discard(stream.partition)
            entries = entries_of(raw)
            gap = stream.rewind(entries[0][0] if entries else START)
            if gap is not None:
                self._gaps.append(gap)

    def read_commands(self, scattered: bool, block_ms: int | None) -> list[Command]:
        """One XREAD over all, `scattered` one for each: no command may span a cluster's slots. The last one blocks."""
        left_out = self.stale | self.foreign
        self._asked = [stream for stream in self._streams.values() if stream.partition not in left_out]
        groups = [[stream] for stream in self._asked] if scattered else [self._asked] if self._asked else []
        commands: list[Command] = []
        for group in groups:
            command: Command = ["XREAD", "COUNT", PAGE, "STREAMS"]
            command += [self._keys.events(stream.partition) for stream in group]
            command += [stream.cursor for stream in group]
            commands.append(command)
        if block_ms is not None and commands:
            commands[-1][3:3] = ["BLOCK", block_ms]
        return commands

    def take(self, raws: Sequence[object], scattered: bool) -> bool:
        """Take what was read; whether there was anything."""
        self._full = []
        anything = False
        for nth, raw in enumerate(raws):
            if isinstance(raw, Refused):
                self.stale.update([self._asked[nth].partition] if scattered else [s.partition for s in self._asked])
                continue
            if isinstance(raw, Broken):
                self.foreign.update([self._asked[nth].partition] if scattered else ())
                continue
            for key, entries in streams_of(raw):
                anything = True
                self._take_page(self._by_key[key], entries)
        return anything

    def head_commands(self) -> list[Command]:
        """How the streams begin of which so much came that some may have been cut off."""
        made: list[Command] = []
        for stream, _ in self._full:
            key = self._keys.events(stream.partition)
            made += [["XLEN", key], ["XRANGE", key, "-", "+", "COUNT", 1]]
        return made

    def heads(self, raws: Sequence[object]) -> None:
        """A full stream that begins after what was read before may have lost some in between."""
        for nth, (stream, before) in enumerate(self._full):
            length, first = raws[2 * nth : 2 * nth + 2]
            if isinstance(length, Refused | Broken) or isinstance(first, Refused | Broken):
                continue
            entries = entries_of(first)
            if number(length) >= KEPT and entries and order(entries[0][0]) > order(before):
                self._gaps.append(Gap(stream.partition, before, entries[0][0], CUT))

    @property
    def behind(self) -> bool:
        """Whether more is there than was read."""
        return bool(self._full or self.stale)

    def ready(self) -> list[Seen | Gap]:
        """What nothing older can follow: gaps first, then events by the server's time."""
        found: list[Seen | Gap] = [*self._gaps]
        self._gaps = []
        limit = min((order(stream.cursor) for stream, _ in self._full), default=None)
        while self._waiting and (limit is None or self._waiting[0][0] <= limit):
            found.append(heapq.heappop(self._waiting)[2])
        return found

    def all_stale(self) -> None:
        """The connection broke."""
        self.stale = set(self._streams) - self.foreign

    def _take_page(self, stream: _Stream, entries: list[_Entry]) -> None:
        before = stream.cursor
        for entry_id, fields in entries:
            if not stream.shows(entry_id, fields):
                continue
            place = order(entry_id)
            for nth, event in enumerate(read_events(fields.get("e", b""))):
                seen = Seen(stream.partition, entry_id, place[0], event)
                heapq.heappush(self._waiting, (place, (stream.partition << 16) + nth, seen))
        if len(entries) >= PAGE:
            self._full.append((stream, before))


def _before(entry_id: str) -> str:
    """The id just before another."""
    at, nth = order(entry_id)
    return f"{at}-{nth - 1}" if nth else f"{max(0, at - 1)}-{2**64 - 1}"
