"""Dead letters: entries that could not be applied, kept with the reason until a person replays or drops them.

Each partition has a stream of them beside its inbox, and the ingress has one beside itself. A letter's id names its
stream: `7:1795970866600-0` is one of partition 7, `ingress:1795970866600-0` one of the ingress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from stepwell.core.errors import StoreError
from stepwell.store.keys import Keys
from stepwell.store.queries import Query, Raws
from stepwell.store.replies import entries_of, items_of, number, order, text
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["INGRESS", "Letter", "drop", "letter", "newest", "pages", "parse_id", "replay", "sources"]

INGRESS: Final = "ingress"
_ID: Final = re.compile(r"(ingress|[0-9]{1,5}):([0-9]{1,20}-[0-9]{1,20})\Z")


class Letter(msgspec.Struct, frozen=True):
    """A dead letter.

    `source` is a partition's number or `ingress`, `kind` a word for the `reason`, `entry` the id that the entry had
    there, `at` when it was buried (ms). `fields` are those of the entry; `cut`: only the beginning of them is kept.
    """

    source: str
    letter_id: str
    kind: str
    reason: str
    entry: str
    at: int | None
    cut: bool
    fields: Mapping[str, bytes]

    @property
    def id(self) -> str:
        """What names it for people, for ever."""
        return f"{self.source}:{self.letter_id}"

    @property
    def age(self) -> tuple[int, int]:
        """The greater, the newer."""
        return order(self.letter_id)


def sources(keys: Keys) -> list[str]:
    """All streams that dead letters are in."""
    return [INGRESS, *(str(part.number) for part in keys.parts)]


def parse_id(keys: Keys, letter_id: str) -> tuple[str, str] | None:
    """Source and entry id of a letter's id; None where it names no stream of this namespace."""
    found = _ID.match(letter_id) if isinstance(letter_id, str) else None
    if found is None or (found[1] != INGRESS and not int(found[1]) < keys.partitions):
        return None
    return found[1] if found[1] == INGRESS else str(int(found[1])), found[2]


def pages(keys: Keys, before: Mapping[str, str], count: int) -> Query[list[list[Letter]]]:
    """The newest letters of some sources, newest first, each older than the id given (`+`: no limit)."""
    commands: list[Command] = [
        ["XREVRANGE", _streams(keys, source)[0], "+" if least == "+" else f"({least}", "-", "COUNT", count]
        for source, least in before.items()
    ]

    def parse(raws: Raws) -> list[list[Letter]]:
        return [_letters(source, raw) for source, raw in zip(before, raws, strict=True)]

    return Query(commands, parse)


def letter(keys: Keys, source: str, letter_id: str) -> Query[Letter | None]:
    """One letter; None where there is none (any more)."""
    command: Command = ["XRANGE", _streams(keys, source)[0], letter_id, letter_id]
    return Query([command], lambda raws: next(iter(_letters(source, raws[0])), None))


def replay(keys: Keys, scripts: Scripts, source: str, letter_id: str) -> Query[str | None]:
    """Puts the entry back where it came from; its new id there, or None where there is no such letter (any more).

    May be repeated: what was put back before is gone. Raises StoreError for a letter that does not hold all of it.
    """
    dead, stream = _streams(keys, source)

    def parse(raws: Raws) -> str | None:
        if raws[0] == b"GONE":
            return None
        if raws[0] == b"CUT":
            raise StoreError(
                f"dead letter {source}:{letter_id} can't be replayed: its entry was too large to be kept whole"
            )
        _, added = items_of(raws[0])
        return text(added)

    return Query([["EVALSHA", scripts.dead_replay, 2, dead, stream, letter_id]], parse)


def drop(keys: Keys, source: str, letter_id: str) -> Query[bool]:
    """Removes a letter for good; False where there is none (any more)."""
    return Query([["XDEL", _streams(keys, source)[0], letter_id]], lambda raws: number(raws[0]) > 0)


def _streams(keys: Keys, source: str) -> tuple[str, str]:
    """The stream of the dead letters, and the one that their entries came from."""
    if source == INGRESS:
        return keys.ingress_dead, keys.ingress
    part = keys.parts[int(source)]
    return part.dead, part.inbox


def _letters(source: str, raw: object) -> list[Letter]:
    return [_letter(source, letter_id, fields) for letter_id, fields in entries_of(raw)]


def _letter(source: str, letter_id: str, fields: Mapping[str, bytes]) -> Letter:
    at = fields.get("at", b"")
    return Letter(
        source=source,
        letter_id=letter_id,
        kind=text(fields.get("kind")),
        reason=text(fields.get("reason")),
        entry=text(fields.get("entry")),
        at=int(at) if at.isdigit() else None,
        cut="cut" in fields,
        fields={name[1:]: value for name, value in fields.items() if name.startswith("=")},
    )


def newest(found: Iterable[Sequence[Letter]], limit: int) -> list[Letter]:
    """The newest of several pages, newest first."""
    return sorted((each for page in found for each in page), key=lambda each: each.age, reverse=True)[:limit]
