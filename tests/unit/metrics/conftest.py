"""One of each event, and a way to read a registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from stepwell.core import events
from stepwell.metrics.instruments import PREFIX
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

AT = 1_767_605_400_125  # 2026-01-05T09:30:00.125Z

FAILED = events.AttemptFailed(
    execution_id="order-7",
    flow="checkout",
    step="charge",
    path="charge#2",
    attempt=2,
    max_attempts=5,
    kind="error",
    error_type="HttpError",
    message="POST https://pay.example/charges answered 503",
    delay_ms=812,
    due_at=AT,
    token="t0",
    key="order-7:t0",
    asked=False,
    started_at=AT - 1000,
    duration_ms=188,
    queued_ms=3,
)

GAVE_UP = events.StepGaveUp(
    execution_id="order-7",
    flow="checkout",
    step="charge",
    path="charge#2",
    attempt=5,
    reason="exhausted",
    kind="error",
    error_type="HttpError",
    message="answered 503",
    token="t0",
    key="order-7:t0",
    at=AT,
    started_at=AT - 1000,
    duration_ms=1000,
)


@pytest.fixture
def gave_up() -> events.StepGaveUp:
    """The last attempt failed."""
    return GAVE_UP


@pytest.fixture
def failed() -> events.AttemptFailed:
    """Attempt 2 of 5 failed."""
    return FAILED


@pytest.fixture
def one_of_each() -> list[events.Event]:
    """Every kind of event, once."""
    where = ("order-7", "checkout", "charge", "charge#2")
    return [
        events.ExecutionBegan("order-7", "checkout", 40, AT),
        events.StepCompleted(*where, 1, 120, AT, 2),
        FAILED,
        GAVE_UP,
        events.BackoffLeft(*where, "timer", 3, AT),
        events.BackoffResumed(*where, 700, 3, AT),
        events.RetryStarted(*where, 2, 3, AT),
        events.StepInterrupted(*where, 2, 1, AT),
        events.StepCancelled(*where, 2, "gather", AT),
        events.ResultDropped("order-7", "checkout", "charge#2", 2, AT),
        events.WaitBegan("order-7", "checkout", "wait", "signal", AT, "approval", AT + 5000),
        events.WaitEnded("order-7", "checkout", "wait", "signal", "timed_out", 5000, AT, "approval"),
        events.ExecutionParked("order-7", "checkout", "code diverged", "recorded charge, now ship", AT, "charge"),
        events.ExecutionResumed("order-7", "checkout", "parked", "retry", AT),
        events.ExecutionEnded("order-7", "checkout", "error", "step failed", 1500, AT),
        events.CommandDone("order-7", "checkout", "retry", False, "it completed", AT, "c1"),
    ]


@pytest.fixture
def sheet() -> Sheet:
    """A sheet in memory."""
    return Sheet.in_memory()


@pytest.fixture
def totals(sheet: Sheet) -> Totals:
    """Totals of that sheet, at place 0."""
    made = Totals()
    made.attach(0, sheet.source)
    return made


@pytest.fixture
def scrapes(totals: Totals, sheet: Sheet) -> Scrapes:
    """What is shown of it."""
    return Scrapes(totals, sheet)


@pytest.fixture
def value(totals: Totals) -> Callable[..., float | None]:
    """`value("step_attempts_total", flow=...)`: a sample's value; None if there is no such series."""

    def read(name: str, **labels: str) -> float | None:
        wanted = (f"{PREFIX}{name}", labels)
        return next((number for sample, of, number in samples_of(totals.take()) if (sample, of) == wanted), None)

    return read


@pytest.fixture
def quiet_root() -> Iterator[None]:
    """Gives the root logger back as it was."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
