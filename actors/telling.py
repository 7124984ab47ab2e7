"""What an execution's actor hears of its attempts, as the rules take it, and what it tells beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stepwell.actors.messages import BodyBegan, Park, StepErred
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import BackoffLeft, ExecutionParked, RetryStarted
from stepwell.core.inputs import AttemptFailed
from stepwell.core.rules.facts import step_name
from stepwell.core.status import PARKED, STEP_BACKOFF


def attempt_failed(message: StepErred, now: int, monotonic: float) -> AttemptFailed:
    """An attempt's error for the rules, heard at `now` (ms), when the monotonic clock reads so many seconds."""
    # Rounded to the nanosecond first, then down: what is left of a delay must not be short.
    passed_ms = math.floor(round((monotonic - message.ended) * 1000, 6))
    return AttemptFailed(
        now,
        message.path,
        message.attempt,
        message.started_at,
        message.ended_at,
        message.error,
        message.retryable,
        message.policy,
        message.retry_after,
        message.kind,
        message.queued_ms,
        passed_ms,
    )


def retry_started(cp: Checkpoint, began: BodyBegan) -> RetryStarted:
    """The body of a later attempt began."""
    path = began.path
    return RetryStarted(cp.execution_id, cp.meta.flow, step_name(path), path, began.attempt, began.late_ms, began.at)


def unloaded(cp: Checkpoint, now: int) -> Iterator[BackoffLeft]:
    """What backs off in an execution that leaves memory."""
    for path, op in cp.open.items():
        if op.status == STEP_BACKOFF and cp.status != PARKED:
            yield BackoffLeft(cp.execution_id, cp.meta.flow, op.name, path, "unloaded", op.attempt, now)


def parked_unread(execution_id: str, fields: dict[str, bytes], park: Park, now: int) -> ExecutionParked:
    """A row was parked that nobody has read."""
    flow = fields.get("flow", b"").decode(errors="replace")
    return ExecutionParked(execution_id, flow, park.reason, park.detail, now)
