"""Looking at one execution, and at workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask
from stepwell.client.waiting import Json, no_such
from stepwell.core.errors import UsageError
from stepwell.core.names import check_execution_id
from stepwell.core.view import view as show
from stepwell.store import queries

__all__ = ["Dicts", "check_limit", "describe", "workers"]

Dicts: TypeAlias = list[dict[str, Json]]

PID_DIGITS_MAX: Final = 20
LIMIT_MAX: Final = 1_000_000


def describe(view: NamespaceView, execution_id: str) -> Conversation[dict[str, Json]]:
    """All that is known about an execution. Raises UnknownExecution."""
    check_execution_id(execution_id)
    keys = yield from view.keys()
    fields = yield from ask(queries.row(keys, execution_id))
    if not fields:
        raise no_such(execution_id)
    return show(execution_id, fields)


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
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"expected the limit to be a whole number from 1 to {LIMIT_MAX:,}, got {limit!r}")
