"""One page of a listing: lists and rows are read until it is full, all is read, or enough was looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.reading import Dicts, check_limit
from stepwell.client.waiting import Json
from stepwell.core import codec
from stepwell.core.attributes import text_of
from stepwell.core.cursor import Cursor, decode_cursor, digest_of, encode_cursor
from stepwell.core.errors import UsageError
from stepwell.core.moments import Moment, moment_ms
from stepwell.core.records import decode_meta
from stepwell.store.finding import Wanted
from stepwell.store.keys import Keys
from stepwell.store.lists import ERROR_TYPE_MAX
from stepwell.store.merging import Listed, Merge
from stepwell.store.queries import Query
from stepwell.store.requests import Command

__all__ = [
    "FIELDS",
    "Begun",
    "Look",
    "Page",
    "Search",
    "Seen",
    "ask_many",
    "begin",
    "has_attributes",
    "has_error",
    "line_of",
    "page_of",
]

FIELDS: Final = ("meta", "status", "updated_at", "error")
"""What `line_of` needs of a row."""
# So many rows that don't fit are looked at for one page: then it comes back short, with a cursor.
MISSES_MOST: Final = 3000
LOOK_AT_ONCE: Final = 500
COMMANDS_AT_ONCE: Final = 5000

Seen: TypeAlias = dict[str, Json] | None
"""What a page shows of an execution; None: it is not one of those that are looked for."""
Look: TypeAlias = Callable[[Sequence[Listed]], Conversation[Sequence[Seen]]]
"""Reads the rows of some that are on a list."""


class Page(list[dict[str, Json]]):
    """Executions, as a list, and where the listing goes on.

    Attributes:
        cursor: give it to `list` with the same arguments for the next page; None where there is nothing more.
        looked: how many executions were looked at for this page.
        at: when it was read, by the namespace's time (ms); 0 where there is none yet.
    """

    def __init__(
        self, found: Iterable[dict[str, Json]] = (), cursor: str | None = None, looked: int = 0, at: int = 0
    ) -> None:
        super().__init__(found)
        self.cursor = cursor
        self.looked = looked
        self.at = at


class Search:
    """Fills one page.

    Attributes:
        found: what the page shows.
        looked: how many executions were looked at.
        last: the last one of them; None where nobody has been looked at yet, on this page or one before.
    """

    def __init__(self, merge: Merge, look: Look, limit: int, after: Listed | None) -> None:
        self.found: Dicts = []
        self.looked = 0
        self.last = after
        self._merge = merge
        self._look = look
        self._limit = limit
        self._at_once = limit

    @property
    def goes_on(self) -> Listed | None:
        """Behind whom the next page begins; None where there is nothing more."""
        return None if self._merge.over else self.last

    def run(self) -> Conversation[None]:
        """Fill the page."""
        while len(self.found) < self._limit and self.looked - len(self.found) < MISSES_MOST:
            while commands := self._merge.missing(self._at_once):
                self._merge.take((yield from ask_many(commands)))
            batch = self._merge.give(self._at_once)
            if not batch and self._merge.over:
                return
            self._take(batch, (yield from self._look(batch)))
            # Where few fit, more are looked at with each round trip.
            self._at_once = min(2 * self._at_once, max(LOOK_AT_ONCE, self._limit))

    def _take(self, batch: Sequence[Listed], seen: Sequence[Seen]) -> None:
        pairs: Iterator[tuple[Listed, Seen]] = zip(batch, seen, strict=True)
        for each, line in pairs:
            self.last = each
            self.looked += 1
            if line is not None:
                self.found.append(line)
                if len(self.found) == self._limit:
                    self._merge.put_back([left for left, _ in pairs])
                    return


class Begun(msgspec.Struct, frozen=True):
    """A listing that is asked for. `wanted` has the times in ms; `before` is where it goes on; `digest` names it."""

    keys: Keys
    wanted: Wanted
    before: Cursor | None
    digest: str

    @property
    def after(self) -> Listed | None:
        """Behind whom it goes on; None: it begins."""
        return None if self.before is None else Listed(self.before.at_ms, self.before.execution_id)

    def cursor(self, choice: str, last: Listed | None) -> str | None:
        """Where it goes on behind `last`."""
        if last is None:
            return None
        times = self.wanted.since_ms, self.wanted.until_ms
        return encode_cursor(Cursor(self.digest, choice, last.at_ms, last.execution_id, *times))


def begin(
    view: NamespaceView,
    looked_for: Wanted,
    choices: Collection[str],
    limit: int,
    since: Moment | None,
    until: Moment | None,
    cursor: str | None,
    more: object = None,
) -> Conversation[Begun]:
    """What every listing begins with; `more` is whatever else tells one from another, `choices` what it may read.

    Raises UsageError for a limit or a time that is none, times with nothing between, and another listing's cursor.
    """
    check_limit(limit)
    asked = (looked_for, _said(since), _said(until))
    digest = digest_of(asked if more is None else (*asked, more))
    before = None if cursor is None else decode_cursor(cursor)
    if before is not None and (before.digest != digest or before.choice not in choices):
        raise UsageError("that cursor is of another listing: give it with the options of the page that it came with")
    keys = yield from view.keys()
    now = view.time_ms()
    since_ms = None if since is None else moment_ms(since, now)
    until_ms = None if until is None else moment_ms(until, now)
    if before is not None:
        return Begun(keys, replace(looked_for, since_ms=before.since_ms, until_ms=before.until_ms), before, digest)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise UsageError(f"nothing can be from {since} on and up to {until}: the first is the later one; swap them")
    return Begun(keys, replace(looked_for, since_ms=since_ms, until_ms=until_ms), before, digest)


def page_of(view: NamespaceView, begun: Begun, choice: str, merge: Merge, look: Look, limit: int) -> Conversation[Page]:
    """The page, read out of the lists of that choice."""
    search = Search(merge, look, limit, begun.after)
    yield from search.run()
    return Page(search.found, begun.cursor(choice, search.goes_on), search.looked, view.time_ms())


def _said(moment: Moment | None) -> str | bool:
    """A text as it was given, for `2h ago` is another moment with each page, but means the first page's. Of any other
    time only that there was one: who works it out from now has another with each page."""
    return str(moment) if isinstance(moment, str) else moment is not None


def ask_many(commands: Sequence[Command]) -> Conversation[list[object]]:
    """The replies to commands of which there may be very many."""
    replies: list[object] = []
    for first in range(0, len(commands), COMMANDS_AT_ONCE):
        replies += yield from ask(Query(commands[first : first + COMMANDS_AT_ONCE], list))
    return replies


def has_attributes(line: Mapping[str, Json], wanted: Wanted) -> bool:
    """Whether it has all that are wanted."""
    given = line["attributes"]
    return all(name in given and text_of(given[name]) == text for name, text in wanted.attributes)


def has_error(error_type: str, wanted: Wanted) -> bool:
    """Whether it is the type of error that is wanted, if one is: as far as lists name it."""
    return wanted.error is None or error_type[:ERROR_TYPE_MAX] == wanted.error[:ERROR_TYPE_MAX]


class _ErrorType(msgspec.Struct):
    type: str


_decode_error = msgspec.json.Decoder(_ErrorType).decode


def line_of(execution_id: str, head: Mapping[str, bytes]) -> dict[str, Json]:
    """What a page shows of any execution, from the `FIELDS` of its row."""
    try:
        meta = decode_meta(head.get("meta", b""))
        flow, created_at, attributes = meta.flow, meta.created_at, meta.attributes or {}
    except codec.UNREADABLE:
        flow, created_at, attributes = "", None, {}
    return {
        "id": execution_id,
        "flow": flow,
        "status": _text(head.get("status")),
        "created_at": created_at,
        "updated_at": _number(head.get("updated_at")),
        "attributes": attributes,
        "error": _error_type(head.get("error")),
    }


def _error_type(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else _decode_error(raw).type
    except codec.UNREADABLE:
        return None


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace")


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw and raw.isdigit() else None
