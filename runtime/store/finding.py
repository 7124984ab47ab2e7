"""Finding executions: which lists hold those that are wanted."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell.core.status import STATUSES
from stepwell.store.keys import Keys, PartitionKeys
from stepwell.store.lists import attribute_key, error_key
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import number
from stepwell.store.requests import Command

__all__ = ["Wanted", "choices", "lists_of_choice", "sizes", "times_of"]

STATUS: Final = "s"


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
    least, most = times_of(wanted)
    commands: list[Command] = [["ZCOUNT", key, least, most] for named in lists.values() for key in named]

    def parse(raws: Raws) -> dict[str, int]:
        found = iter(raws)
        return {choice: sum(number(next(found)) for _ in named) for choice, named in lists.items()}

    return Query(commands, parse)


def times_of(wanted: Wanted) -> tuple[str, str]:
    """The times wanted, as bounds of a range of a list."""
    least = "(-inf" if wanted.since_ms is None else str(wanted.since_ms)
    return least, "(+inf" if wanted.until_ms is None else str(wanted.until_ms)
