"""How much lies in some partitions: what gauges and live views show of it. Costs the same however much there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from stepwell.core.status import CANCELLED, COMPLETED, STATUSES
from stepwell.store import backoffs
from stepwell.store.backoffs import Size
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import Broken, Refused, entries_of, items_of, number, order, text
from stepwell.store.requests import Command

__all__ = ["Counts", "Lying", "count"]

_SHOWN: Final = tuple(status for status in STATUSES if status not in (COMPLETED, CANCELLED))
_STRIKES: Final = ("x:", "e:")


class Lying(msgspec.Struct, frozen=True):
    """What waits to be applied, or for a person. `entries` in the inboxes; `unread_ms` is when the oldest of them came
    that was not read yet, None where all were; `there`: of those asked for the ones that lie there. `letters` that are
    dead, and `suspects`: executions and entries that shards have died on.
    `ingress`: entries there, with its letters; 0 unless partition 0 is among those counted, so that only one counts.
    """

    entries: int = 0
    unread_ms: int | None = None
    there: frozenset[tuple[int, str]] = frozenset()
    letters: int = 0
    suspects: int = 0
    ingress: int = 0


class Counts(msgspec.Struct):
    """How many executions of some partitions have not ended, or failed, by status; how many wait for a time that is
    known (`timed`), how many for something else (`untimed`); by flow how many back off, and when the first is due (ms);
    and what lies there.
    """

    sizes: dict[str, int]
    waiting: dict[str, int]
    backoffs: dict[str, tuple[int, int]]
    lying: Lying


def count(link: Link, keys: Keys, read: Mapping[int, str], begun: Sequence[tuple[int, str]] = ()) -> Counts:
    """Count these partitions, in two round trips. A stranger's key counts as empty, and so does what lies at a master
    of a cluster that is away. Raises as `Link.call_each` does.

    `read`: by partition up to which entry its inbox was read; `begun`: entries of which it is asked whether they are
    there; those that can't be looked for are.
    """
    partitions = list(read)
    sizes: list[Command] = [["ZCARD", keys.by(p, status)] for status in _SHOWN for p in partitions]
    waiting = backoffs.waiting(keys, partitions)
    flows = backoffs.flows(keys, partitions)
    lying = _lying_commands(keys, read)
    asked: list[Command] = [["XRANGE", keys.inbox(p), entry_id, entry_id] for p, entry_id in begun]
    answers = iter(_ask(link, [*sizes, *waiting.commands, *flows.commands, *asked, *lying]))
    by_status = {status: sum([number(next(answers)) for _ in partitions]) for status in _SHOWN}
    waits = waiting.parse([next(answers) for _ in waiting.commands])
    lists = backoffs.pairs(flows.parse([next(answers) for _ in flows.commands]))
    there = frozenset([each for each in begun if (raw := next(answers)) is None or entries_of(raw)])
    lies = msgspec.structs.replace(_lying(list(answers), 0 in partitions), there=there)
    return Counts(by_status, waits, backoffs.by_flow(_backing_off(link, keys, lists)), lies)


def _ask(link: Link, commands: Sequence[Command]) -> list[object]:
    return [None if isinstance(raw, Refused | Broken) else raw for raw in link.call_each(commands)]


def _backing_off(link: Link, keys: Keys, lists: Sequence[tuple[int, str]]) -> Iterator[tuple[str, Size]]:
    asked = [backoffs.size(keys, *each) for each in lists]
    answers = iter(_ask(link, [command for query in asked for command in query.commands]))
    for (_, flow), query in zip(lists, asked, strict=True):
        size = query.parse([next(answers) for _ in query.commands])
        if size is not None:
            yield flow, size


def _lying_commands(keys: Keys, read: Mapping[int, str]) -> list[Command]:
    commands: list[Command] = [["XLEN", keys.ingress], ["XLEN", keys.ingress_dead]] if 0 in read else []
    for part, last in ((keys.parts[p], last) for p, last in read.items()):
        commands += [
            ["XLEN", part.inbox],
            ["XRANGE", part.inbox, f"({last}", "+", "COUNT", 1],
            ["XLEN", part.dead],
            ["HKEYS", part.suspects],
        ]
    return commands


def _lying(raws: list[object], with_ingress: bool) -> Lying:
    ingress, letters = map(number, raws[:2]) if with_ingress else (0, 0)
    rest = raws[2:] if with_ingress else raws
    oldest = [order(entries[0][0])[0] for raw in rest[1::4] if (entries := entries_of(raw))]
    return Lying(
        entries=sum(map(number, rest[0::4])),
        unread_ms=min(oldest, default=None),
        letters=letters + sum(map(number, rest[2::4])),
        suspects=sum(text(field).startswith(_STRIKES) for raw in rest[3::4] for field in items_of(raw)),
        ingress=ingress,
    )
