"""What the demo knows at its end: the receiver's raw log, what was done to the worker, and what the runtime says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepwell.client.waiting import Json
from stepwell.core.retry import Retry
from stepwell.demo.ledger import Effect, Request

__all__ = ["Evidence", "Exhausted", "Kill", "OrderSeen", "StepSeen", "order_seen"]


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL of the worker: the monotonic times just before it was sent and just after the process was gone."""

    sent: float
    gone: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """An execution that ended in `error`: the step that failed, its key, its attempts and interruptions by then.

    A retry counts interruptions anew.
    """

    order: str
    step: str
    key: str
    attempts: int
    interruptions: int = 0


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step as `describe` shows it at the end."""

    path: str
    status: str
    key: str
    attempts: tuple[int, ...]
    interruptions: int
    receipt: str


@dataclass(frozen=True, slots=True)
class OrderSeen:
    """An execution as `describe` shows it at the end."""

    order: str
    status: str
    steps: tuple[StepSeen, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is judged."""

    orders: Sequence[str]
    policies: Mapping[str, Retry]  # by step, in the flow's order
    requests: Sequence[Request]
    effects: Sequence[Effect]
    kills: Sequence[Kill] = ()
    exhausted: Sequence[Exhausted] = ()
    retried: Sequence[str] = ()  # orders whose `retry` was applied
    seen: Sequence[OrderSeen] = field(default=())
    worker_exit: int = 0


def order_seen(described: Mapping[str, Json]) -> OrderSeen:
    """What `Client.describe` says, as far as it is judged."""
    return OrderSeen(
        order=str(described["id"]),
        status=str(described["status"]),
        steps=tuple(_step_seen(step) for step in described["steps"]),
    )


def _step_seen(step: Mapping[str, Json]) -> StepSeen:
    result = step["result"]
    return StepSeen(
        path=str(step["path"]),
        status=str(step["status"]),
        key=str(step["key"]),
        attempts=tuple(int(attempt["n"]) for attempt in step["attempts"]),
        interruptions=int(step["interruptions"]),
        receipt=str(result["receipt"]) if isinstance(result, dict) else "",
    )
