"""The namespace at a glance, from five round trips at most, whatever the number of executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, peek
from stepwell.client.reading import check_limit
from stepwell.core.overview import ERROR_CHARS_MAX, BackingOff, Inbox, Overview, Seen, overview_of
from stepwell.core.records import STEP, OpenOp
from stepwell.core.redact import redact
from stepwell.core.status import STEP_BACKOFF
from stepwell.store import overview as store
from stepwell.store.backoffs import Backoff
from stepwell.store.keys import Keys
from stepwell.store.overview import Look, Waiting

__all__ = ["overview"]

# The oldest entry is looked for in so many inboxes, the longest ones: an entry may be large.
INBOXES_MAX: Final = 4


def overview(view: NamespaceView, before: Overview | None, limit: int) -> Conversation[Overview]:
    """What there is now, and how fast it changes since `before`; at most `limit` entries of each kind."""
    check_limit(limit)
    keys = yield from view.keys()
    look = yield from peek(store.look(keys))
    inboxes = sorted(look.inboxes, key=lambda each: -look.inboxes[each])[:INBOXES_MAX]
    waiting = yield from peek(store.waiting(keys, look.flows, inboxes))
    listed = yield from peek(store.following(keys, waiting, limit))
    backing_off = yield from _details(keys, listed, before)
    seen = Seen(
        namespace=keys.namespace,
        at=look.at,
        partitions=keys.partitions,
        counts=look.counts,
        durability=look.durability,
        leases=look.leases,
        members=look.members,
        beats=look.beats,
        versions=look.versions,
        vitals=look.vitals,
        inbox=_inbox(look, waiting),
        dead_letters=look.dead_letters,
        by_flow=waiting.by_flow,
        next=backing_off,
        memory=look.memory,
        unread=redact(look.unread or waiting.unread)[:ERROR_CHARS_MAX],
    )
    return overview_of(seen, before, limit)


def _inbox(look: Look, waiting: Waiting) -> Inbox:
    partition, oldest = min(waiting.oldest.items(), key=lambda each: each[1], default=(None, None))
    return Inbox(sum(look.inboxes.values()), oldest, partition, look.ingress)


def _details(keys: Keys, listed: list[Backoff], before: Overview | None) -> Conversation[list[BackingOff]]:
    """What the rows say of those that back off: read once, for it does not change while the due time is the same."""
    known: Mapping[tuple[str, int], BackingOff] = (
        {} if before is None else {(each.execution, each.due_at): each for each in before.backoffs.next if each.path}
    )
    new = [each for each in listed if (each.execution_id, each.due_ms) not in known]
    found = {} if not new else (yield from _read(keys, new))
    return [
        known.get((each.execution_id, each.due_ms))
        or found.get(each.execution_id, BackingOff(each.execution_id, each.flow, each.due_ms))
        for each in listed
    ]


def _read(keys: Keys, listed: list[Backoff]) -> Conversation[dict[str, BackingOff]]:
    opened = yield from peek(store.opened(keys, [each.execution_id for each in listed]))
    found = []
    for each, operations in zip(listed, opened, strict=True):
        path = _first(operations)
        if path is not None:
            op = operations[path]
            due = each.due_ms if op.due_at is None else op.due_at
            found.append(BackingOff(each.execution_id, each.flow, due, path, op.attempt))
    last = yield from peek(store.attempts(keys, [(e.execution, e.path or "", (e.attempt or 1) - 1) for e in found]))
    return {
        each.execution: each
        if attempt is None
        else replace(
            each,
            max_attempts=attempt.last or None,
            error_type=attempt.error.type,
            error=redact(attempt.error.message)[:ERROR_CHARS_MAX],
        )
        for each, attempt in zip(found, last, strict=True)
    }


def _first(operations: Mapping[str, OpenOp]) -> str | None:
    """The path of the step that backs off and is due first."""
    waiting = [
        (op.due_at, path)
        for path, op in operations.items()
        if op.kind == STEP and op.status == STEP_BACKOFF and op.due_at is not None
    ]
    return min(waiting)[1] if waiting else None
