"""One of each event, and a way to read a registry."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from stepwell.core import events
from stepwell.metrics.names import Metrics

AT = 1_767_605_400_125  # 2026-01-05T09:30:00.125Z

FAILED = events.AttemptFailed(
    execution_id="order-7",
    flow="checkout",
    step="charge",
    path="charge#2",
    attempt=2,
    max_attempts=5,
    error_type="HttpError",
    message="POST https://pay.example/charges answered 503",
    delay_ms=812,
    due_at=AT,
    token="t0",
    key="order-7:t0",
    asked=False,
)


@pytest.fixture
def failed() -> events.AttemptFailed:
    """Attempt 2 of 5 failed."""
    return FAILED


@pytest.fixture
def one_of_each() -> list[events.Event]:
    """Every kind of event, once."""
    where = ("order-7", "checkout", "charge", "charge#2")
    return [
        events.ExecutionBegan("order-7", "checkout", 40),
        events.StepCompleted(*where, 1, 120),
        FAILED,
        events.StepGaveUp(*where, 5, "exhausted", "HttpError", "answered 503", "t0", "order-7:t0"),
        events.BackoffLeft(*where, "due"),
        events.BackoffResumed(*where, 700),
        events.RetryStarted(*where, 2, 3),
        events.StepInterrupted(*where, 2, 1),
        events.ResultDropped("order-7", "checkout", "charge#2", 2),
        events.ExecutionParked("order-7", "checkout", "code diverged", "recorded charge, now ship"),
        events.ExecutionEnded("order-7", "checkout", "error", "step failed", 1500),
        events.CommandDone("order-7", "checkout", "retry", False, "it completed"),
    ]


@pytest.fixture
def metrics() -> Metrics:
    """All metrics on a registry of their own."""
    return Metrics(CollectorRegistry())


@pytest.fixture
def value(metrics: Metrics) -> Callable[..., float | None]:
    """`value("attempts_total", flow=...)`: a sample's value; None if there is no such series."""

    def read(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"stepwell_{name}", labels)

    return read
