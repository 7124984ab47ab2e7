"""What can be asked of the store, as data: the commands of one round trip, and what their replies mean.

Blocking and asyncio callers share these; only how the commands travel differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from stepwell.core.errors import StoreError
from stepwell.core.status import STATUSES
from stepwell.store.keys import Keys
from stepwell.store.replies import Broken, Created, Exists, fields_of, items_of, number, text
from stepwell.store.requests import Command, Create
from stepwell.store.scripts import Scripts

__all__ = [
    "Outcome",
    "Query",
    "Raws",
    "counts",
    "create",
    "heads",
    "outcome",
    "row",
    "rows",
    "send",
]

T = TypeVar("T")
Raws = Sequence[object]


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """Commands that go out together; `parse` takes their raw replies, none of which is an error."""

    commands: Sequence[Command]
    parse: Callable[[Raws], T]


class Outcome(msgspec.Struct, frozen=True):
    """How a command ended: `outcome` is the JSON that the owner recorded."""

    outcome: bytes
    at_ms: int


def create(keys: Keys, scripts: Scripts, request: Create) -> Query[Created | Exists]:
    """Makes a queued execution, or tells what holds the id. May be repeated when its reply was lost."""

    def parse(raws: Raws) -> Created | Exists:
        reply = request.parse(raws[0])
        if isinstance(reply, Created | Exists):
            return reply
        reason = reply.message if isinstance(reply, Broken) else repr(reply)
        raise StoreError(f"execution {request.execution_id} could not be created: {reason}")

    return Query([request.args(keys, scripts)], parse)


def send(keys: Keys, partition: int, fields: Iterable[tuple[str, str | bytes | int]]) -> Query[str]:
    """Adds an entry to a partition's inbox and gives its id; repeated it may be there twice."""
    command: Command = ["XADD", keys.inbox(partition), "*"]
    for name, value in fields:
        command += [name, value]
    return Query([command], lambda raws: text(raws[0]))


def row(keys: Keys, execution_id: str) -> Query[dict[str, bytes]]:
    """All fields of an execution's row; empty where there is none."""
    return Query([["HGETALL", keys.row(execution_id)]], lambda raws: fields_of(raws[0]))


def rows(keys: Keys, execution_ids: Iterable[str]) -> Query[list[dict[str, bytes]]]:
    """The same for many, in one round trip."""
    return Query([["HGETALL", keys.row(each)] for each in execution_ids], lambda raws: [fields_of(raw) for raw in raws])


def heads(keys: Keys, execution_ids: Iterable[str], names: Sequence[str]) -> Query[list[dict[str, bytes]]]:
    """Some fields of many rows, in one round trip; a field that a row lacks is left out."""

    def parse(raws: Raws) -> list[dict[str, bytes]]:
        return [
            {name: value for name, value in zip(names, items_of(raw), strict=True) if isinstance(value, bytes)}
            for raw in raws
        ]

    return Query([["HMGET", keys.row(each), *names] for each in execution_ids], parse)


def outcome(keys: Keys, partition: int, command_id: str) -> Query[Outcome | None]:
    """How a command ended; None while it waits, and again an hour after it ended."""

    def parse(raws: Raws) -> Outcome | None:
        recorded, at = items_of(raws[0])
        return Outcome(recorded, number(at)) if isinstance(recorded, bytes) else None

    return Query([["HMGET", keys.cmd(partition, command_id), "outcome", "at"]], parse)


def counts(keys: Keys) -> Query[dict[str, int]]:
    """How many executions there are of each status."""

    def parse(raws: Raws) -> dict[str, int]:
        sizes = [number(raw) for raw in raws]
        width = keys.partitions
        return {status: sum(sizes[place * width : (place + 1) * width]) for place, status in enumerate(STATUSES)}

    return Query([["ZCARD", part.by[status]] for status in STATUSES for part in keys.parts], parse)
