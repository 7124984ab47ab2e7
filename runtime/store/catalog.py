"""What callers ask and change without owning anything: starting, describing and listing executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import redis

from stepwell.core.errors import StoreError
from stepwell.store.keys import STATUSES, Keys
from stepwell.store.link import Link, StoreRefused
from stepwell.store.replies import entries_of, fields_of, items_of, number, scored, text
from stepwell.store.requests import Broken, Command, Create, Created, Exists, Refused
from stepwell.store.scripts import Scripts

__all__ = ["Catalog", "Cursor", "DeadEntry", "Listed", "Outcome"]


class Listed(msgspec.Struct, frozen=True, order=True):
    """An execution in a listing; `at_ms` is when it reached the status. As a cursor: list what is older."""

    at_ms: int
    execution_id: str


Cursor = Listed


class Outcome(msgspec.Struct, frozen=True):
    """How a command ended: `outcome` is the JSON that the owner recorded."""

    outcome: bytes
    at_ms: int


class DeadEntry(msgspec.Struct, frozen=True):
    """A dead letter: `fields` has `reason`, `entry` (its inbox id), `fields` (the entry as JSON) and `at` (ms)."""

    partition: int
    entry_id: str
    fields: dict[str, bytes]


class Catalog:
    """Executions as callers see them. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._keys = keys

    def create(self, request: Create) -> Created | Exists:
        """Makes a queued execution, or tells what holds the id. May be repeated after LinkDown."""
        (reply,) = self._link.execute([request])
        if isinstance(reply, Created | Exists):
            return reply
        if isinstance(reply, Refused):
            raise StoreRefused(reply.reason, reply.kind)
        reason = reply.message if isinstance(reply, Broken) else repr(reply)
        raise StoreError(f"execution {request.execution_id} could not be created: {reason}")

    def row(self, execution_id: str) -> dict[str, bytes]:
        """All fields of an execution's row; empty where there is none."""
        return fields_of(self._link.call([["HGETALL", self._keys.row(execution_id)]])[0])

    def rows(self, execution_ids: Iterable[str]) -> list[dict[str, bytes]]:
        """The same for many, in one round trip."""
        raws = self._link.call([["HGETALL", self._keys.row(execution_id)] for execution_id in execution_ids])
        return [fields_of(raw) for raw in raws]

    def heads(self, execution_ids: Iterable[str], names: Sequence[str]) -> list[dict[str, bytes]]:
        """Some fields of many rows, in one round trip; a field that a row lacks is left out."""
        raws = self._link.call([["HMGET", self._keys.row(execution_id), *names] for execution_id in execution_ids])
        return [
            {name: value for name, value in zip(names, items_of(raw), strict=True) if isinstance(value, bytes)}
            for raw in raws
        ]

    def outcome(self, partition: int, command_id: str) -> Outcome | None:
        """How a command ended; None while it waits, and again an hour after it ended."""
        (raw,) = self._link.call([["HMGET", self._keys.cmd(partition, command_id), "outcome", "at"]])
        outcome, at = items_of(raw)
        return Outcome(outcome, number(at)) if isinstance(outcome, bytes) else None

    def listed(self, status: str, limit: int, before: Cursor | None = None) -> list[Listed]:
        """Executions of one status, newest first, over all partitions; the last one is the cursor to the next page."""
        indexes = [part.by[status] for part in self._keys.parts]
        commands: list[Command] = []
        for index in indexes:
            below = "+inf" if before is None else f"({before.at_ms}"
            commands.append(["ZREVRANGEBYSCORE", index, below, "-inf", "WITHSCORES", "LIMIT", 0, limit])
            if before is not None:
                commands.append(["ZRANGEBYSCORE", index, before.at_ms, before.at_ms, "WITHSCORES"])
        found = [Listed(int(score), member) for raw in self._link.call(commands) for member, score in scored(raw)]
        if before is not None:
            found = [each for each in found if each < before]
        return sorted(found, reverse=True)[:limit]

    def dead(self, limit: int) -> list[DeadEntry]:
        """The newest dead letters over all partitions, newest first."""
        parts = self._keys.parts
        raws = self._link.call([["XREVRANGE", part.dead, "+", "-", "COUNT", limit] for part in parts])
        found = [
            DeadEntry(part.number, entry_id, fields)
            for part, raw in zip(parts, raws, strict=True)
            for entry_id, fields in entries_of(raw)
        ]
        return sorted(found, key=_age, reverse=True)[:limit]

    def counts(self) -> dict[str, int]:
        """How many executions there are of each status."""
        raws = self._link.call([["ZCARD", part.by[status]] for status in STATUSES for part in self._keys.parts])
        sizes = [number(raw) for raw in raws]
        width = self._keys.partitions
        return {status: sum(sizes[place * width : (place + 1) * width]) for place, status in enumerate(STATUSES)}


def _age(entry: DeadEntry) -> tuple[int, int]:
    at, _, nth = text(entry.entry_id).partition("-")
    return (int(at), int(nth or "0"))
