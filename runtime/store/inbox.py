"""What waits for a partition's owner: commands and doorbells in its inbox, due executions in its indexes.

Reading changes nothing; entries leave the inbox only by the scripts that apply or bury them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import redis

from stepwell.core.errors import StoreError
from stepwell.core.formats import FORMAT
from stepwell.store import census
from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown, StoreRefused, block_ms_max
from stepwell.store.replies import entries_of, items_of, number, scored, streams_of, text
from stepwell.store.requests import Command
from stepwell.store.scattered import START, ScatteredReads
from stepwell.store.scripts import Scripts

__all__ = ["COMMAND_FORMAT", "START", "Entry", "InboxStore"]

COMMAND_FORMAT: Final = str(FORMAT)

_PAGE: Final = 500


class Entry(msgspec.Struct):
    """One inbox entry. Anyone may write to a stream, so any field may be missing or odd.

    Commands carry `type` (`signal cancel retry ...`), `execution`, `command` (its id), `data` (JSON), `at` (ms) and
    `v` (`COMMAND_FORMAT`); doorbells carry `type` `start`, `execution`, `flow`, `at` and `v`.
    """

    partition: int
    entry_id: str
    fields: dict[str, bytes]


class InboxStore:
    """Reads what is to be done in partitions. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._keys = keys
        self._streams = {part.inbox: part.number for part in keys.parts}
        self._scattered = ScatteredReads(keys)
        self.block_ms_max = block_ms_max(client)
        """The longest that `read` blocks: longer would look like a dead connection."""

    def read(self, after: Mapping[int, str], block_ms: int | None, count: int) -> list[Entry]:
        """Entries of several partitions, each after the id given (`START` for all), at most `count` of each.

        Waits up to `block_ms` (at most `block_ms_max`) for the first one; None does not wait. In a Redis Cluster it
        waits shorter, and partitions whose master can't be reached are passed over; once that one answers, they are
        read from the start.
        """
        if not after:
            return []
        if not self._link.clustered:
            try:
                (raw,) = self._link.call([self._one_command(after, block_ms, count)])
            except StoreError as error:
                # What is no passing trouble is a key of another type: then each is asked for its own.
                if not self._link.clustered and isinstance(error, LinkDown | StoreRefused):
                    raise
            else:
                self._scattered.broken, self._scattered.refused = {}, frozenset()
                return self._entries([raw])
        commands = self._scattered.commands(after, block_ms, count)
        return self._entries(self._scattered.answers(self._link.call_each(commands)))

    @property
    def clustered(self) -> bool:
        """Whether partitions are at several servers, of which one may be away."""
        return self._link.clustered

    @property
    def unreadable(self) -> Mapping[int, str]:
        """Partitions whose inbox is a stranger's key, with what the server says of it; as of the last `read`."""
        return self._scattered.broken

    @property
    def away(self) -> frozenset[int]:
        """Partitions whose master did not answer, as of the last `read`: what is asked of them now would raise."""
        return self._scattered.refused

    def _one_command(self, after: Mapping[int, str], block_ms: int | None, count: int) -> Command:
        command: Command = ["XREAD", "COUNT", count]
        if block_ms is not None:
            # BLOCK 0 would wait for ever.
            command += ["BLOCK", max(1, min(block_ms, self.block_ms_max))]
        command.append("STREAMS")
        parts = self._keys.parts
        command += [parts[partition].inbox for partition in after]
        command += after.values()
        return command

    def _entries(self, raws: Sequence[object]) -> list[Entry]:
        return [
            Entry(self._streams[stream], entry_id, fields)
            for raw in raws
            for stream, entries in streams_of(raw)
            for entry_id, fields in entries
        ]

    def scan(self, partition: int, after: str, count: int) -> list[Entry]:
        """The next `count` entries of one partition after an id (`START` for the first)."""
        return self._entries(self._link.call_ours([self._one_command({partition: after}, None, count)]))

    def due(self, partition: int, now_ms: int, limit: int) -> list[tuple[str, float]]:
        """Unfinished executions due by now with their due times in ms (0 = at once), the most overdue first.

        At most `limit` of those due at once, and as many of the others: a crowd of one kind hides none of the other.
        """
        live = self._keys.live(partition)
        ask: list[Command] = [
            ["ZRANGEBYSCORE", live, least, most, "WITHSCORES", "LIMIT", 0, limit]
            for least, most in (("-inf", "0"), ("(0", str(now_ms)))
        ]
        return [found for raw in self._link.call_ours(ask) for found in scored(raw)]

    def falling_due(self, windows: Mapping[int, tuple[float, float]]) -> list[tuple[int, list[tuple[str, float]]]]:
        """Unfinished executions of several partitions, each of which is due after the first and not after the second of
        two times in ms, which may be infinite. With their due times (0 = at once), by partition.
        """
        ask: list[Command] = [
            ["ZRANGEBYSCORE", self._keys.live(partition), f"({_bound(after)}", _bound(until), "WITHSCORES"]
            for partition, (after, until) in windows.items()
        ]
        return [(partition, scored(raw)) for partition, raw in zip(windows, self._link.call_ours(ask), strict=True)]

    def last_event_ms(self, partitions: Sequence[int]) -> list[int]:
        """The latest time of the server's clock at which something happened in each partition, in ms; 0: nothing ever.

        The ids of a stream never go back, whatever the clock does.
        """
        ask: list[Command] = [["XREVRANGE", self._keys.events(p), "+", "-", "COUNT", 1] for p in partitions]
        newest = [entries_of(raw) for raw in self._link.call_ours(ask)]
        return [int(entries[0][0].partition("-")[0]) if entries else 0 for entries in newest]

    def unfinished(self, partition: int) -> Iterator[list[tuple[str, float]]]:
        """All unfinished executions with their due times, in chunks and in no order.

        Whatever is unfinished all the while is seen; an execution may be seen twice.
        """
        cursor = "0"
        while True:
            (raw,) = self._link.call_ours([["ZSCAN", self._keys.live(partition), cursor, "COUNT", _PAGE]])
            if raw is None:
                return
            position, members = items_of(raw)
            if found := scored(members):
                yield found
            cursor = text(position)
            if cursor == "0":
                return

    def parked(self, partitions: Sequence[int]) -> list[list[str]]:
        """The ids of the parked executions of each partition."""
        ask: list[Command] = [["ZRANGE", self._keys.by(partition, "parked"), 0, -1] for partition in partitions]
        return [[text(member) for member in members] for members in map(items_of, self._link.call_ours(ask))]

    def send(self, partition: int, fields: Mapping[str, str | bytes | int]) -> str:
        """Adds an entry and returns its id. After LinkDown it may be there or not; sent again it may be there twice."""
        command: Command = ["XADD", self._keys.inbox(partition), "*"]
        for name, value in fields.items():
            command += [name, value]
        (raw,) = self._link.call([command])
        return text(raw)

    def count(self, read: Mapping[int, str], begun: Sequence[tuple[int, str]] = ()) -> census.Counts:
        """How many executions of some partitions have not ended, what they wait for, and what lies there. `read`: by
        partition up to which entry its inbox was read; `begun`: entries of them that are said to be there still."""
        return census.count(self._link, self._keys, read, begun)

    def lengths(self) -> list[int]:
        """How many entries wait, by partition."""
        return [number(raw) for raw in self._link.call_ours([["XLEN", part.inbox] for part in self._keys.parts])]


def _bound(score: float) -> str:
    if math.isinf(score):
        return "+inf" if score > 0 else "-inf"
    return str(int(score))
