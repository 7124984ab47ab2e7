"""Who backs off, and what else waits, as questions to the store: by index, whether it is in memory or not.

Each partition lists the flows of which something backs off, and for each of them the executions by the due time of
their first step that does. Parked executions are on no such list: nothing will wake them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from stepwell.core import codec
from stepwell.core.names import attempt_field
from stepwell.core.records import Attempt, OpenOp, decode_attempt, decode_open
from stepwell.store.keys import Keys
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import fields_of, items_of, number, scored, text
from stepwell.store.requests import Command

__all__ = [
    "Backoff",
    "Flows",
    "Size",
    "attempt",
    "attempt_of",
    "backoffs",
    "by_flow",
    "flows",
    "lists",
    "pairs",
    "scan",
    "scanned",
    "size",
    "waiting",
]

OPEN_SCAN: Final = 10_000
"""Of a row's fields so many are looked through at a time."""

Flows: TypeAlias = Mapping[int, Sequence[str]]
"""By partition: the flows of which something backs off there."""


Size: TypeAlias = tuple[int, int]
"""How many executions back off, and when the first of them is due (ms)."""


class Backoff(msgspec.Struct, frozen=True, order=True):
    """An execution that backs off: its first step that does is due at `due_ms`."""

    due_ms: int
    execution_id: str
    flow: str


def flows(keys: Keys, partitions: Iterable[int]) -> Query[Flows]:
    """What the other questions start from; a second round trip, but only to lists that there are."""
    asked = list(partitions)

    def parse(raws: Raws) -> Flows:
        named = {p: [text(flow) for flow in items_of(raw)] for p, raw in zip(asked, raws, strict=True)}
        return {partition: sorted(found) for partition, found in named.items() if found}

    return Query([["SMEMBERS", keys.parts[partition].backoff] for partition in asked], parse)


def backoffs(keys: Keys, of: Flows, limit: int) -> Query[list[Backoff]]:
    """Those that are due next, at most `limit` of them."""
    lists = pairs(of)

    def parse(raws: Raws) -> list[Backoff]:
        found = [
            Backoff(int(due), execution_id, flow)
            for (_, flow), raw in zip(lists, raws, strict=True)
            for execution_id, due in scored(raw)
            if math.isfinite(due)
        ]
        return sorted(found)[:limit]

    named = [keys.parts[partition].backoff_of + flow for partition, flow in lists]
    return Query([["ZRANGE", key, 0, max(0, limit - 1), "WITHSCORES"] for key in named], parse)


def size(keys: Keys, partition: int, flow: str) -> Query[Size | None]:
    """How many executions of a flow back off in a partition, and when the first of them is due; None if none does."""
    key = keys.parts[partition].backoff_of + flow

    def parse(raws: Raws) -> Size | None:
        first = scored(raws[1])
        return (number(raws[0]), int(first[0][1])) if first else None

    return Query([["ZCARD", key], ["ZRANGE", key, 0, 0, "WITHSCORES"]], parse)


def by_flow(sizes: Iterable[tuple[str, Size]]) -> dict[str, Size]:
    """Sizes of all partitions together."""
    found: dict[str, Size] = {}
    for flow, (many, due) in sizes:
        before, first = found.get(flow, (0, due))
        found[flow] = (before + many, min(first, due))
    return found


def waiting(keys: Keys, partitions: Iterable[int]) -> Query[dict[str, int]]:
    """How many executions wait for a time that is known (`timed`: a timer, a timeout, the end of a backoff), and how
    many for something that may never come (`untimed`)."""
    commands: list[Command] = []
    for part in (keys.parts[partition] for partition in partitions):
        commands += [
            ["ZCOUNT", part.live, "(0", "(+inf"],
            ["ZCOUNT", part.live, "+inf", "+inf"],
            ["ZCARD", part.by["parked"]],
        ]

    def parse(raws: Raws) -> dict[str, int]:
        timed, endless, parked = (sum(map(number, raws[place::3])) for place in range(3))
        return {"timed": timed, "untimed": max(0, endless - parked)}

    return Query(commands, parse)


def pairs(of: Flows) -> list[tuple[int, str]]:
    """The lists that there are, each by partition and flow."""
    return [(partition, flow) for partition, named in of.items() for flow in named]


def lists(keys: Keys, of: Flows, flow: str | None) -> list[str]:
    """The keys of the lists that there are, of one flow or of all: by due time (ms)."""
    return [keys.parts[partition].backoff_of + named for partition, named in pairs(of) if flow in (None, named)]


def scan(keys: Keys, execution_id: str, cursor: str = "0") -> Command:
    """Looks for open operations in a row, from there on; `scanned` reads the reply."""
    return ["HSCAN", keys.row(execution_id), cursor, "MATCH", "p:*", "COUNT", OPEN_SCAN]


def scanned(raw: object) -> tuple[str, dict[str, OpenOp]]:
    """Where to go on in a row that is very long ('0': that was all), and the open operations found, by path."""
    cursor, found = items_of(raw)
    opened: dict[str, OpenOp] = {}
    for field, value in fields_of(found).items():
        try:
            opened[field.removeprefix("p:")] = decode_open(value)
        except codec.UNREADABLE:
            continue
    return text(cursor), opened


def attempt_of(keys: Keys, execution_id: str, path: str, number: int) -> Command:
    """Asks for the record of a failed attempt; `attempt` reads the reply."""
    return ["HGET", keys.row(execution_id), attempt_field(path, number)]


def attempt(raw: object) -> Attempt | None:
    """The record; None where there is none, or none that can be read."""
    try:
        return decode_attempt(raw) if isinstance(raw, bytes) else None
    except codec.UNREADABLE:
        return None
