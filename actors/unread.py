"""A row that is parked without being read: it stays as it is but for status and error."""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.actors import messages as m
from stepwell.actors.shard import Shard
from stepwell.core.codec import UNREADABLE
from stepwell.core.ownership import next_rev
from stepwell.core.records import TerminalError, decode_meta, encode
from stepwell.core.status import PARKED, STATUSES, TERMINAL
from stepwell.store.leases import Grant
from stepwell.store.requests import DROP, Commit


def parking_commit(
    shard: Shard, grant: Grant, execution_id: str, fields: Mapping[str, bytes], park: m.Park, forget: str
) -> Commit | None:
    """What parks it; None where it is parked already, has ended, or its revision or status is none."""
    status = fields.get("status", b"").decode(errors="replace")
    rev = fields.get("rev", b"")
    if not rev.isdigit() or status not in STATUSES or status == PARKED or status in TERMINAL:
        return None
    now = shard.clock.now_ms()
    flow = _flow_of(fields)
    return Commit(
        partition=grant.partition,
        execution_id=execution_id,
        lease=grant.value,
        expected_rev=int(rev),
        rev=next_rev(int(rev), grant.epoch),
        commit_id=shard.commit_id(),
        now_ms=now,
        sets=[("error", encode(TerminalError(park.reason, park.detail, now)))],
        status_from=status,
        status_to=PARKED,
        live="+inf",
        forget=forget,
        flow=flow,
        backoff=DROP if flow else "",
    )


def _flow_of(fields: Mapping[str, bytes]) -> str:
    """The flow under which it may be listed as backing off; '' where the row does not say that any more."""
    try:
        return decode_meta(fields.get("meta", b"")).flow
    except UNREADABLE:
        return fields.get("flow", b"").decode(errors="replace")
