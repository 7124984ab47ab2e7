"""Listing executions by status, flow, type of error, attributes and time, page by page."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.reading import Dicts, check_limit
from stepwell.client.waiting import Json
from stepwell.core import codec
from stepwell.core.attributes import check_attributes, text_of
from stepwell.core.cursor import Cursor, decode_cursor, digest_of, encode_cursor
from stepwell.core.errors import UsageError
from stepwell.core.moments import Moment, moment_ms
from stepwell.core.names import check_name
from stepwell.core.records import decode_meta
from stepwell.core.status import SETTLED, STATUSES
from stepwell.store import finding, queries
from stepwell.store.finding import Listed, Merge, Wanted
from stepwell.store.keys import Keys
from stepwell.store.lists import ERROR_TYPE_MAX
from stepwell.store.queries import Query

__all__ = ["Page", "listing", "wanted"]

FIELDS: Final = ("meta", "status", "updated_at", "error")
# So many rows that don't fit are looked at for one page: then it comes back short, with a cursor.
MISSES_MOST: Final = 3000
LOOK_AT_ONCE: Final = 500


class Page(list[dict[str, Json]]):
    """Executions, as a list, and where the listing goes on.

    Attributes:
        cursor: give it to `list` with the same arguments for the next page; None where there is nothing more.
        looked: how many executions were looked at for this page.
    """

    def __init__(self, found: Iterable[dict[str, Json]] = (), cursor: str | None = None, looked: int = 0) -> None:
        super().__init__(found)
        self.cursor = cursor
        self.looked = looked


def wanted(status: str | None, flow: str | None, error: str | None, attributes: Mapping[str, object] | None) -> Wanted:
    """What is looked for. Raises UsageError for what no execution can have."""
    if status is not None and status not in STATUSES:
        close = difflib.get_close_matches(str(status), STATUSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(STATUSES)}"
        raise UsageError(f"unknown status {status!r}: {hint}")
    if error is not None and (not isinstance(error, str) or not error):
        raise UsageError(f"expected the name of a type of error, such as ValueError, got {error!r:.60}")
    given = check_attributes(attributes) or {}
    texts = tuple(sorted((name, text_of(value)) for name, value in given.items()))
    return Wanted(status, None if flow is None else check_name("flow", flow), error, texts)


def listing(
    view: NamespaceView,
    looked_for: Wanted,
    limit: int,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor: str | None = None,
) -> Conversation[Page]:
    """The next page.

    Raises UsageError for a time that is none, times with nothing between, and the cursor of another listing.
    """
    check_limit(limit)
    asked = digest_of((looked_for, _said(since), _said(until)))
    before = None if cursor is None else _read(cursor, looked_for, asked)
    keys = yield from view.keys()
    now = view.time_ms()
    mine = replace(
        looked_for,
        since_ms=None if since is None else moment_ms(since, now),
        until_ms=None if until is None else moment_ms(until, now),
    )
    if before is None:
        if mine.since_ms is not None and mine.until_ms is not None and mine.since_ms > mine.until_ms:
            raise UsageError(f"nothing can be from {since} on and up to {until}: the first is the later one; swap them")
        choice = yield from _narrowest(keys, mine)
        search = _Search(keys, mine, choice, None, limit)
    else:
        mine = replace(mine, since_ms=before.since_ms)
        search = _Search(keys, mine, before.choice, Listed(before.at_ms, before.execution_id), limit)
    yield from search.run()
    last = search.last
    ends = last is None or search.is_over
    where = None if ends or last is None else _cursor(asked, mine, search.choice, last)
    return Page(search.found, where, search.looked)


def _said(moment: Moment | None) -> str | bool:
    """A text as it was given, for `2h ago` is another moment with each page, but means the first page's. Of any other
    time only that there was one: who works it out from now has another with each page."""
    return str(moment) if isinstance(moment, str) else moment is not None


def _read(cursor: str, looked_for: Wanted, asked: str) -> Cursor:
    before = decode_cursor(cursor)
    if before.digest != asked or before.choice not in finding.choices(looked_for):
        raise UsageError("that cursor is of another listing: give it with the options of the page that it came with")
    return before


def _cursor(asked: str, mine: Wanted, choice: str, last: Listed) -> str:
    return encode_cursor(Cursor(asked, choice, last.at_ms, last.execution_id, mine.since_ms))


def _narrowest(keys: Keys, mine: Wanted) -> Conversation[str]:
    """The lists that hold the fewest executions of that time."""
    first, *others = finding.choices(mine)
    if not others:
        return first
    sizes = yield from ask(finding.sizes(keys, mine))
    return min(sizes, key=lambda choice: sizes[choice])


class _Search:
    """Reads lists and rows until a page is full, all is read, or enough was looked at."""

    def __init__(self, keys: Keys, mine: Wanted, choice: str, after: Listed | None, limit: int) -> None:
        self.choice = choice
        self.found: Dicts = []
        self.looked = 0
        self.last: Listed | None = after
        self._keys = keys
        self._mine = mine
        self._limit = limit
        self._at_once = limit
        self._merge = Merge(finding.lists_of_choice(keys, mine, choice), mine, after, 4 + 2 * limit // keys.partitions)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing behind the last one that was looked at."""
        return self._merge.over

    def run(self) -> Conversation[None]:
        """Fill the page."""
        while len(self.found) < self._limit and self.looked - len(self.found) < MISSES_MOST:
            while commands := self._merge.missing(self._at_once):
                self._merge.take((yield from ask(Query(commands, list))))
            batch = self._merge.give(self._at_once)
            if not batch and self._merge.over:
                return
            heads = yield from ask(queries.heads(self._keys, [each.execution_id for each in batch], FIELDS))
            self._look(batch, heads)
            # Where few fit, more are looked at with each round trip.
            self._at_once = min(2 * self._at_once, max(LOOK_AT_ONCE, self._limit))

    def _look(self, batch: Sequence[Listed], heads: Sequence[Mapping[str, bytes]]) -> None:
        pairs: Iterator[tuple[Listed, Mapping[str, bytes]]] = zip(batch, heads, strict=True)
        for each, head in pairs:
            self.last = each
            self.looked += 1
            line = _line(each.execution_id, head)
            if _fits(line, self._mine):
                self.found.append(line)
                if len(self.found) == self._limit:
                    self._merge.put_back([left for left, _ in pairs])
                    return


def _fits(line: Mapping[str, Json], mine: Wanted) -> bool:
    """What has moved on or was purged since the list was read is left out."""
    status, attributes = line["status"], line["attributes"]
    if status not in STATUSES or mine.status not in (None, status) or mine.flow not in (None, line["flow"]):
        return False
    error = str(line["error"] or "") if status in SETTLED else ""
    if mine.error is not None and error[:ERROR_TYPE_MAX] != mine.error[:ERROR_TYPE_MAX]:
        return False
    return all(name in attributes and text_of(attributes[name]) == text for name, text in mine.attributes)


class _ErrorType(msgspec.Struct):
    type: str


_decode_error = msgspec.json.Decoder(_ErrorType).decode


def _line(execution_id: str, head: Mapping[str, bytes]) -> dict[str, Json]:
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
