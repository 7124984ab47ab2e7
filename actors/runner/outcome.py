"""An attempt's context as its body begins, and its error as its actor is told."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from stepwell.actors.kit.clock import deadline_in
from stepwell.actors.messages import StepErred
from stepwell.actors.runner.order import StepOrder
from stepwell.core.clock import Clock
from stepwell.flow.attempt import AttemptError, failure_of
from stepwell.flow.context import StepContext

logger = logging.getLogger("stepwell.runner")


def context_with_deadline(order: StepOrder) -> StepContext:
    """What the body may know of itself; its timeout counts from now."""
    timeout = order.call.step.timeout
    if timeout is None:
        return order.context
    return replace(order.context, deadline=deadline_in(timeout))


def erred(order: StepOrder, started: int, error: BaseException, clock: Clock) -> StepErred:
    """What the attempt raised just now, judged by its step's policy."""
    context = order.context
    logger.debug("attempt %d of %s %s raised", context.attempt, context.execution_id, context.path, exc_info=error)
    return told(order, started, failure_of(error, order.call.step), clock)


def told(order: StepOrder, started: int, judged: AttemptError, clock: Clock) -> StepErred:
    """An error that was judged where it was raised; the attempt has ended just now."""
    context = order.context
    return StepErred(
        context.path,
        context.attempt,
        started,
        clock.now_ms(),
        clock.monotonic(),
        judged.error,
        judged.retryable,
        order.call.step.retry,
        judged.retry_after,
        judged.kind,
        max(0, started - order.ready_at),
    )
