"""Listing executions that back off: which step, after which error, and when its next attempt is due, the soonest first.

They are found by the lists of what backs off, however many executions there are; what else is wanted is told by their
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.searching import (
    FIELDS,
    Page,
    Seen,
    ask_many,
    begin,
    has_attributes,
    has_error,
    line_of,
    page_of,
)
from stepwell.client.waiting import Json
from stepwell.core.errors import UsageError
from stepwell.core.moments import Moment
from stepwell.core.names import check_name
from stepwell.core.overview import ERROR_CHARS_MAX
from stepwell.core.records import STEP, Attempt, OpenOp
from stepwell.core.redact import redact
from stepwell.core.status import STATUSES_OF_BACKOFFS, STEP_BACKOFF
from stepwell.store import backoffs, queries
from stepwell.store.finding import Wanted
from stepwell.store.keys import Keys
from stepwell.store.merging import Listed, Merge, SoonestFirst

__all__ = ["backing_off"]

BY_BACKOFF: Final = "b"


@dataclass(frozen=True, slots=True)
class _Backoff:
    """A step that backs off."""

    due_ms: int
    path: str
    op: OpenOp


def backing_off(
    view: NamespaceView,
    looked_for: Wanted,
    limit: int,
    step: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor: str | None = None,
) -> Conversation[Page]:
    """The next page: of `step`, if one is named; an error is that of the last attempt, times are those of the start.

    Raises UsageError for a status of which none backs off, and as `begin` does.
    """
    if looked_for.status not in (None, *STATUSES_OF_BACKOFFS):
        of = " or ".join(STATUSES_OF_BACKOFFS)
        raise UsageError(f"nothing that is {looked_for.status} backs off, only what is {of}: leave the status out")
    if step is not None:
        check_name("step", step)
    begun = yield from begin(view, looked_for, (BY_BACKOFF,), limit, since, until, cursor, ("backing off", step))
    keys = begun.keys
    flows = yield from ask(backoffs.flows(keys, range(keys.partitions)))
    lists = backoffs.lists(keys, flows, looked_for.flow)
    merge = Merge(lists, SoonestFirst(), begun.after, 4 + 2 * limit // max(1, len(lists)))
    rows = _Rows(keys, begun.wanted, step)
    return (yield from page_of(view, begun, BY_BACKOFF, merge, rows.look, limit))


class _Rows:
    """What rows say of those that are on a list."""

    def __init__(self, keys: Keys, wanted: Wanted, step: str | None) -> None:
        self._keys = keys
        self._wanted = wanted
        self._step = step

    def look(self, batch: Sequence[Listed]) -> Conversation[Sequence[Seen]]:
        """A line for each that fits."""
        ids = [each.execution_id for each in batch]
        heads = yield from ask(queries.heads(self._keys, ids, FIELDS))
        lines = {each: line_of(each, head) for each, head in zip(ids, heads, strict=True)}
        opened = yield from self._opened([each for each in ids if self._fits(lines[each])])
        asked = [
            (each, backoff, sum(op.status == STEP_BACKOFF for op in opened[each].values()))
            for each in opened
            for backoff in self._candidates(opened[each])
        ]
        commands = [backoffs.attempt_of(self._keys, each, of.path, of.op.attempt - 1) for each, of, _ in asked]
        attempts = map(backoffs.attempt, (yield from ask_many(commands)))
        found: dict[str, dict[str, Json]] = {}
        for (each, backoff, count), attempt in zip(asked, attempts, strict=True):
            if each not in found and has_error("" if attempt is None else attempt.error.type, self._wanted):
                found[each] = {**lines[each], "backoff": _shown(backoff, attempt, count - 1)}
        return [found.get(each) for each in ids]

    def _opened(self, ids: Sequence[str]) -> Conversation[dict[str, dict[str, OpenOp]]]:
        """Their open operations; a row may be so long that it is read in pieces."""
        found: dict[str, dict[str, OpenOp]] = {each: {} for each in ids}
        cursors = dict.fromkeys(ids, "0")
        while cursors:
            replies = yield from ask_many([backoffs.scan(self._keys, *each) for each in cursors.items()])
            for each, raw in zip(list(cursors), replies, strict=True):
                cursors[each], more = backoffs.scanned(raw)
                found[each].update(more)
            cursors = {each: cursor for each, cursor in cursors.items() if cursor != "0"}
        return found

    def _candidates(self, opened: Mapping[str, OpenOp]) -> list[_Backoff]:
        """Steps that back off and may be shown, the one that is due first before the others."""
        found = [
            _Backoff(op.due_at, path, op)
            for path, op in opened.items()
            if op.kind == STEP and op.status == STEP_BACKOFF and op.due_at is not None
            if self._step in (None, op.name)
        ]
        found.sort(key=lambda each: (each.due_ms, each.path))
        return found if self._wanted.error is not None else found[:1]

    def _fits(self, line: Mapping[str, Json]) -> bool:
        """What has ended or was parked since the list was read is left out."""
        wanted, created = self._wanted, line["created_at"]
        if line["status"] not in ((wanted.status,) if wanted.status else STATUSES_OF_BACKOFFS):
            return False
        if wanted.flow not in (None, line["flow"]) or not has_attributes(line, wanted):
            return False
        since, until = wanted.since_ms, wanted.until_ms
        if created is None:
            return since is None and until is None
        return (since is None or created >= since) and (until is None or created <= until)


def _shown(backoff: _Backoff, attempt: Attempt | None, others: int) -> dict[str, Json]:
    return {
        "path": backoff.path,
        "step": backoff.op.name,
        "attempt": backoff.op.attempt,
        "max_attempts": None if attempt is None else attempt.last or None,
        "due_at": backoff.due_ms,
        "error_type": None if attempt is None else attempt.error.type,
        "error": None if attempt is None else redact(attempt.error.message)[:ERROR_CHARS_MAX],
        "others": others,
    }
