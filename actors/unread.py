"""A row that is parked without being read: it stays as it is but for status and error."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from stepwell.actors.shard import Shard
from stepwell.core.attributes import Attributes
from stepwell.core.codec import UNREADABLE
from stepwell.core.events import ExecutionParked
from stepwell.core.ownership import next_rev
from stepwell.core.records import TerminalError, decode_meta, encode
from stepwell.core.status import PARKED, STATUSES, TERMINAL
from stepwell.metrics.saying import say
from stepwell.store.leases import Grant
from stepwell.store.requests import DROP, Commit

logger = logging.getLogger("stepwell.execution")


def parking_commit(
    shard: Shard, grant: Grant, fields: Mapping[str, bytes], told: ExecutionParked, forget: str
) -> Commit | None:
    """What parks it, as is told once that is written; None where it is parked already, has ended, or its revision or
    status is none."""
    status = fields.get("status", b"").decode(errors="replace")
    rev = fields.get("rev", b"")
    if not rev.isdigit() or status not in STATUSES:
        what = "execution %s can't be read (%s: %s), nor parked: its row has no revision or status"
        place = told.execution_id
        words = {"reason": told.reason, "detail": told.detail}
        say(logger, "KeyUnreadable", what, place, *words.values(), level=logging.ERROR, execution=place, of=words)
        return None
    if status == PARKED or status in TERMINAL:
        return None
    now = told.at
    flow, attributes = _known_of(fields)
    return Commit(
        partition=grant.partition,
        execution_id=told.execution_id,
        lease=grant.value,
        expected_rev=int(rev),
        rev=next_rev(int(rev), grant.epoch),
        commit_id=shard.commit_id(),
        now_ms=now,
        sets=[("error", encode(TerminalError(told.reason, told.detail, now)))],
        status_from=status,
        status_to=PARKED,
        live="+inf",
        event=encode((told,)),
        forget=forget,
        flow=flow,
        backoff=DROP if flow else "",
        attributes=attributes,
        place=(now, told.reason),
    )


def _known_of(fields: Mapping[str, bytes]) -> tuple[str, Attributes | None]:
    """By which flow and attributes it is listed, as far as the row still says that."""
    try:
        meta = decode_meta(fields.get("meta", b""))
        return meta.flow, meta.attributes
    except UNREADABLE:
        return fields.get("flow", b"").decode(errors="replace"), None
