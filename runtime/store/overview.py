"""One reading of a whole namespace, as questions: three round trips, and single rows beside them.

What it costs is bounded by the number of partitions, not by that of the executions: `PER_PARTITION` commands for each
and few for all together; then two for each pair of a partition and a flow of which something backs off there, but not
for more than `LISTS_MAX`. Only lists that may have one of those that are due next are read.

A key that holds something else than it should, or whose master is away, counts as empty; `unread` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from stepwell.core import codec
from stepwell.core.fullness import Memory
from stepwell.core.ownership import Member
from stepwell.core.records import Attempt, OpenOp
from stepwell.core.status import STATUSES
from stepwell.core.vitals import Vitals
from stepwell.store import backoffs, queries
from stepwell.store.backoffs import Backoff, Flows, Size
from stepwell.store.keys import Keys
from stepwell.store.leases import parse_lease
from stepwell.store.members import members_of
from stepwell.store.memory import INFO, memory_of
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import (
    Broken,
    Refused,
    entries_of,
    number,
    order,
    text,
    time_us,
)
from stepwell.store.requests import Command
from stepwell.store.vitals import vitals_of
from stepwell.store.workers import Heartbeat, heartbeats_of

__all__ = ["LISTS_MAX", "PER_PARTITION", "Look", "Waiting", "attempts", "following", "look", "opened", "waiting"]

T = TypeVar("T")

PER_PARTITION: Final = len(STATUSES) + 4
LISTS_MAX: Final = 3_000

NO_MEMBERS: Final[dict[str, Member]] = {}
NO_BEATS: Final[dict[str, Heartbeat]] = {}
NO_VITALS: Final[dict[str, Vitals]] = {}

# What reading a reply raises that nobody of ours wrote.
_ODD: Final = (*codec.UNREADABLE, TypeError, OverflowError)


class Look(msgspec.Struct, frozen=True):
    """The first round trip. `leases`: the owner of each partition that has one; `inboxes` the lengths of those that are
    not empty; `flows` those of which something backs off."""

    at: int
    durability: str
    counts: dict[str, int]
    members: dict[str, Member]
    beats: dict[str, int]
    versions: dict[str, str]
    vitals: dict[str, Vitals]
    leases: dict[int, str]
    inboxes: dict[int, int]
    ingress: int
    dead_letters: int
    flows: Flows
    unread: str
    memory: Memory | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The second one: by partition and flow how many back off and when the first of them is due, and when the oldest
    entry of each inbox that was looked at came."""

    lists: dict[tuple[int, str], Size]
    oldest: dict[int, int]
    unread: str

    @property
    def by_flow(self) -> dict[str, Size]:
        """How many back off of each flow, and when the first of them is due."""
        return backoffs.by_flow((flow, size) for (_, flow), size in self.lists.items())


class _Answers:
    """Takes replies in the order of their commands, and remembers the first that was none."""

    def __init__(self, raws: Raws) -> None:
        self._raws = iter(raws)
        self.unread = ""

    def one(self, read: Callable[[object], T], empty: T) -> T:
        """The next reply; `empty` where it is none."""
        raw = next(self._raws)
        if isinstance(raw, Refused | Broken):
            self.unread = self.unread or (raw.reason if isinstance(raw, Refused) else raw.said)
            return empty
        try:
            return read(raw)
        except _ODD as error:
            self.unread = self.unread or str(error)
            return empty

    def aside(self, read: Callable[[object], T | None]) -> T | None:
        """The next reply; where there is none, that is no fault: not every user may ask for it."""
        told = self.unread
        found = self.one(read, None)
        self.unread = told
        return found

    def many(self, count: int, read: Callable[[object], T], empty: T) -> list[T]:
        """So many of them."""
        return [self.one(read, empty) for _ in range(count)]

    def of(self, query: Query[T], empty: T) -> T:
        """What another question says to its replies; those that are none count as nil."""
        raws = self.many(len(query.commands), lambda raw: raw, None)
        try:
            return query.parse(raws)
        except _ODD as error:
            self.unread = self.unread or str(error)
            return empty


def look(keys: Keys) -> Query[Look]:
    """What can be asked without knowing anything."""
    every = range(keys.partitions)
    sizes, flows = queries.counts(keys), backoffs.flows(keys, every)
    commands: list[Command] = [
        ["TIME"],
        ["HGET", keys.meta, "durability"],
        ["HGETALL", keys.shards],
        ["HGETALL", keys.workers],
        ["HGETALL", keys.vitals],
        ["XLEN", keys.ingress],
        ["XLEN", keys.ingress_dead],
        INFO,
    ]
    for name, wanted in (
        ("XLEN", [part.dead for part in keys.parts]),
        ("XLEN", [part.inbox for part in keys.parts]),
        ("GET", [part.lease for part in keys.parts]),
    ):
        commands += [[name, key] for key in wanted]
    commands += [*sizes.commands, *flows.commands]

    def parse(raws: Raws) -> Look:
        answers = _Answers(raws)
        at = answers.one(time_us, 0) // 1000
        durability = answers.one(text, "") or "relaxed"
        members = answers.one(members_of, NO_MEMBERS)
        beats = answers.one(heartbeats_of, NO_BEATS)
        vitals = answers.one(vitals_of, NO_VITALS)
        ingress = answers.one(number, 0)
        dead_in_ingress = answers.one(number, 0)
        memory = answers.aside(memory_of)
        dead = dead_in_ingress + sum(answers.many(keys.partitions, number, 0))
        inboxes = answers.many(keys.partitions, number, 0)
        holders = [parse_lease(each) for each in answers.many(keys.partitions, text, "")]
        return Look(
            at=at,
            durability=durability,
            members=members,
            beats={name: beat["at"] for name, beat in beats.items()},
            versions={name: each for name, beat in beats.items() if isinstance(each := beat.get("version"), str)},
            vitals=vitals,
            ingress=ingress,
            dead_letters=dead,
            inboxes={partition: size for partition, size in enumerate(inboxes) if size},
            leases={partition: holder.owner for partition, holder in enumerate(holders) if holder is not None},
            counts=answers.of(sizes, dict.fromkeys(STATUSES, 0)),
            flows=answers.of(flows, {}),
            unread=answers.unread,
            memory=memory,
        )

    return Query(commands, parse)


def waiting(keys: Keys, flows: Flows, inboxes: Sequence[int]) -> Query[Waiting]:
    """How many back off of these flows, and how old these inboxes are."""
    lists = {each: backoffs.size(keys, *each) for each in backoffs.pairs(flows)[:LISTS_MAX]}
    commands: list[Command] = [["XRANGE", keys.inbox(each), "-", "+", "COUNT", 1] for each in inboxes]
    for query in lists.values():
        commands += query.commands

    def parse(raws: Raws) -> Waiting:
        answers = _Answers(raws)
        oldest = answers.many(len(inboxes), _first_at, None)
        found = [(each, answers.of(query, None)) for each, query in lists.items()]
        left_out = sum(map(len, flows.values())) > LISTS_MAX
        return Waiting(
            lists={each: size for each, size in found if size is not None},
            oldest={partition: at for partition, at in zip(inboxes, oldest, strict=True) if at is not None},
            unread=f"more than {LISTS_MAX} lists of backoffs" if left_out else answers.unread,
        )

    return Query(commands, parse)


def following(keys: Keys, found: Waiting, limit: int) -> Query[list[Backoff]]:
    """The `limit` that are due next."""
    # A list whose first is due after the first of so many others has none of them.
    first = sorted(found.lists, key=lambda each: found.lists[each][1])[:limit]
    of: dict[int, list[str]] = {}
    for partition, flow in first:
        of.setdefault(partition, []).append(flow)
    listed = backoffs.backoffs(keys, of, limit)
    return Query(listed.commands, lambda raws: _Answers(raws).of(listed, []))


def opened(keys: Keys, execution_ids: Iterable[str]) -> Query[list[dict[str, OpenOp]]]:
    """The open operations of some executions, by path; of a row that is very long not all may be found."""
    commands = [backoffs.scan(keys, each) for each in execution_ids]
    return Query(commands, lambda raws: _Answers(raws).many(len(commands), lambda raw: backoffs.scanned(raw)[1], {}))


def attempts(keys: Keys, of: Iterable[tuple[str, str, int]]) -> Query[list[Attempt | None]]:
    """The records of some failed attempts, each named by execution, path and number."""
    commands = [backoffs.attempt_of(keys, *each) for each in of]
    return Query(commands, lambda raws: _Answers(raws).many(len(commands), backoffs.attempt, None))


def _first_at(raw: object) -> int | None:
    return next((order(entry_id)[0] for entry_id, _ in entries_of(raw)), None)
