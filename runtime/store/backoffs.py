"""Who backs off, and what else waits, as questions to the store: by index, whether it is in memory or not.

Each partition lists the flows of which something backs off, and for each of them the executions by the due time of
their first step that does. Parked executions are on no such list: nothing will wake them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from stepwell.store.keys import Keys
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import items_of, number, scored, text
from stepwell.store.requests import Command

__all__ = ["Backoff", "Flows", "backoffs", "counts", "flows", "waiting"]

Flows: TypeAlias = Mapping[int, Sequence[str]]
"""By partition: the flows of which something backs off there."""


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
    lists = _lists(keys, of)

    def parse(raws: Raws) -> list[Backoff]:
        found = [
            Backoff(int(due), execution_id, flow)
            for (flow, _), raw in zip(lists, raws, strict=True)
            for execution_id, due in scored(raw)
            if math.isfinite(due)
        ]
        return sorted(found)[:limit]

    return Query([["ZRANGE", key, 0, max(0, limit - 1), "WITHSCORES"] for _, key in lists], parse)


def counts(keys: Keys, of: Flows) -> Query[dict[str, tuple[int, int]]]:
    """By flow: how many executions back off, and when the first of them is due (ms). Flows with none are left out."""
    lists = _lists(keys, of)
    commands: list[Command] = []
    for _, key in lists:
        commands += [["ZCARD", key], ["ZRANGE", key, 0, 0, "WITHSCORES"]]

    def parse(raws: Raws) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for place, (flow, _) in enumerate(lists):
            size, first = number(raws[2 * place]), scored(raws[2 * place + 1])
            if first:
                before, due = found.get(flow, (0, int(first[0][1])))
                found[flow] = (before + size, min(due, int(first[0][1])))
        return found

    return Query(commands, parse)


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


def _lists(keys: Keys, of: Flows) -> list[tuple[str, str]]:
    return [(flow, keys.parts[partition].backoff_of + flow) for partition, named in of.items() for flow in named]
