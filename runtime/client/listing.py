"""Listing executions by status, flow, type of error, attributes and time, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.searching import FIELDS, Page, Seen, begin, has_attributes, has_error, line_of, page_of
from stepwell.client.waiting import Json
from stepwell.core.attributes import check_attributes, text_of
from stepwell.core.errors import UsageError
from stepwell.core.moments import Moment
from stepwell.core.names import check_name
from stepwell.core.similar import did_you_mean
from stepwell.core.status import SETTLED, STATUSES
from stepwell.store import finding, queries
from stepwell.store.finding import Wanted
from stepwell.store.keys import Keys
from stepwell.store.merging import LatestFirst, Listed, Merge

__all__ = ["listing", "wanted"]


def wanted(status: str | None, flow: str | None, error: str | None, attributes: Mapping[str, object] | None) -> Wanted:
    """What is looked for. Raises UsageError for what no execution can have."""
    if status is not None and status not in STATUSES:
        hint = did_you_mean(str(status), STATUSES) or f"there are {', '.join(STATUSES)}"
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
    begun = yield from begin(view, looked_for, finding.choices(looked_for), limit, since, until, cursor)
    keys, mine, before = begun.keys, begun.wanted, begun.before
    choice = before.choice if before is not None else (yield from _narrowest(keys, mine))
    lists = finding.lists_of_choice(keys, mine, choice)
    merge = Merge(lists, LatestFirst(mine), begun.after, 4 + 2 * limit // keys.partitions)

    def look(batch: Sequence[Listed]) -> Conversation[Sequence[Seen]]:
        heads = yield from ask(queries.heads(keys, [each.execution_id for each in batch], FIELDS))
        lines = [line_of(each.execution_id, head) for each, head in zip(batch, heads, strict=True)]
        return [line if _fits(line, mine) else None for line in lines]

    return (yield from page_of(view, begun, choice, merge, look, limit))


def _narrowest(keys: Keys, mine: Wanted) -> Conversation[str]:
    """The lists that hold the fewest executions of that time."""
    first, *others = finding.choices(mine)
    if not others:
        return first
    sizes = yield from ask(finding.sizes(keys, mine))
    return min(sizes, key=lambda choice: sizes[choice])


def _fits(line: Mapping[str, Json], mine: Wanted) -> bool:
    """What has moved on or was purged since the list was read is left out."""
    status = line["status"]
    if status not in STATUSES or mine.status not in (None, status) or mine.flow not in (None, line["flow"]):
        return False
    error = str(line["error"] or "") if status in SETTLED else ""
    return has_error(error, mine) and has_attributes(line, mine)
