"""Looking at executions and workers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, TypeAlias

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.waiting import Json, no_such
from stepwell.core import codec
from stepwell.core.errors import UsageError
from stepwell.core.names import check_execution_id
from stepwell.core.records import decode_meta
from stepwell.core.status import STATUSES
from stepwell.core.view import view as show
from stepwell.store import queries
from stepwell.store.queries import Listed

__all__ = ["Dicts", "check_limit", "describe", "listing", "workers"]

Dicts: TypeAlias = list[dict[str, Json]]

# Rows are looked at in pages of this size where most of them may be of other flows.
SEARCH_PAGE: Final = 500
PID_DIGITS_MAX: Final = 20
FIELDS: Final = ("meta", "status", "updated_at")


def describe(view: NamespaceView, execution_id: str) -> Conversation[dict[str, Json]]:
    """All that is known about an execution. Raises UnknownExecution."""
    check_execution_id(execution_id)
    keys = yield from view.keys()
    fields = yield from ask(queries.row(keys, execution_id))
    if not fields:
        raise no_such(execution_id)
    return show(execution_id, fields)


def listing(view: NamespaceView, status: str | None, flow: str | None, limit: int) -> Conversation[Dicts]:
    """Executions, those first that reached their status last. Raises UsageError for an unknown status."""
    check_limit(limit)
    if status is not None and status not in STATUSES:
        close = difflib.get_close_matches(str(status), STATUSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(STATUSES)}"
        raise UsageError(f"unknown status {status!r}: {hint}")
    keys = yield from view.keys()
    page_size = limit if flow is None else max(limit, SEARCH_PAGE)
    found: dict[str, dict[str, Json]] = {}
    before: Listed | None = None
    while len(found) < limit:
        page = yield from ask(queries.listed(keys, STATUSES if status is None else [status], page_size, before))
        ids = [each.execution_id for each in page]
        rows = yield from ask(queries.heads(keys, ids, FIELDS))
        for execution_id, head in zip(ids, rows, strict=True):
            line = _line(execution_id, head)
            # What moved on or was purged since the index was read is left out.
            if line["status"] in ([status] if status else STATUSES) and (flow is None or line["flow"] == flow):
                found.setdefault(execution_id, line)
        if len(page) < page_size:
            break
        before = page[-1]
    return list(found.values())[:limit]


def workers(view: NamespaceView) -> Conversation[Dicts]:
    """The living workers: `id host pid at flows`."""
    facts = yield from view.read()
    return [_worker(worker) for worker in facts.workers]


def _worker(beat: Mapping[str, object]) -> dict[str, Json]:
    # A heartbeat says `host/namespace,boot,pid,start`, which tells processes apart and not people anything.
    host, _, pid, _ = (str(beat.get("host", "")).split(",") + [""] * 3)[:4]
    flows = beat.get("flows")
    return {
        "id": beat["id"],
        "host": host.partition("/")[0],
        "pid": int(pid) if pid.isascii() and pid.isdigit() and len(pid) < PID_DIGITS_MAX else None,
        "at": beat["at"],
        "flows": sorted(flows) if isinstance(flows, dict) else [],
    }


def check_limit(limit: object) -> None:
    """Raises UsageError for what is no number of things to show."""
    if type(limit) is not int or limit < 1:
        raise UsageError(f"expected the limit to be a whole number of at least 1, got {limit!r}")


def _line(execution_id: str, head: Mapping[str, bytes]) -> dict[str, Json]:
    try:
        meta = decode_meta(head.get("meta", b""))
        flow, created_at = meta.flow, meta.created_at
    except codec.UNREADABLE:
        flow, created_at = "", None
    return {
        "id": execution_id,
        "flow": flow,
        "status": _text(head.get("status")),
        "created_at": created_at,
        "updated_at": _number(head.get("updated_at")),
    }


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace")


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw and raw.isdigit() else None
