"""What is active while a body runs: its attempt's span, on whichever thread, and nothing of it afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from spans import Collected
from unit.actors import isolated
from unit.actors.told import WaitingBox

from stepwell import step
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.clock import SystemClock
from stepwell.actors.messages import StepDone
from stepwell.actors.runner import StepOrder, StepRunner
from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall
from stepwell.store.leases import Grant

pytestmark = pytest.mark.threads
TRACE = "00-0af7651916cd43dd8448eb211c80319c-"
collected = Collected()


@pytest.fixture(scope="module")
def runner() -> Iterator[StepRunner]:
    clock = SystemClock()
    holdings = Holdings(clock.monotonic)
    holdings.hold(Grant(3, 1, "lease", True, 0), clock.monotonic() + 3600)
    made = StepRunner(clock, holdings, lambda _: None, threads=1, tracing=collected.traces())
    made.begin()
    yield made
    made.stop(5.0)


def active() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


@step(name="body")
async def in_a_task() -> list[str]:
    before = active()
    await asyncio.sleep(0)
    inner = await asyncio.create_task(_later())
    return [before, inner, active()]


async def _later() -> str:
    return active()


@step(name="body")
def on_a_thread() -> list[str]:
    with collected.provider.get_tracer("users").start_as_current_span("mine") as span:
        parent = span.parent.span_id if span.parent is not None else 0  # type: ignore[attr-defined]
    return [active(), f"{parent:016x}", threading.current_thread().name]


def value(runner: StepRunner, body: Any, traceparent: str, path: str) -> list[str]:
    context = StepContext("e1", "f", "body", path, 1, "token", "e1:token", 7, traceparent=traceparent)
    box = WaitingBox()
    runner.start(StepOrder(3, "lease", StepCall(body, (), {}), context), box)  # type: ignore[arg-type]
    done = box.next()
    while not isinstance(done, StepDone):
        done = box.next()
    result: list[str] = body.decode_result(done.value)
    return result


def test_a_task_and_what_it_starts_run_under_the_attempts_span(runner: StepRunner) -> None:
    assert value(runner, in_a_task, TRACE + "b7ad6b7169203331-01", "a") == ["b7ad6b7169203331"] * 3


def test_a_thread_runs_under_the_attempts_span_and_forgets_it(runner: StepRunner) -> None:
    first = value(runner, on_a_thread, TRACE + "b7ad6b7169203331-01", "b")
    second = value(runner, on_a_thread, "", "c")
    assert first[:2] == ["b7ad6b7169203331"] * 2
    assert second[:2] == ["0" * 16] * 2, "nothing is left of the step before"
    assert first[2] == second[2], "it was the same thread"


def test_a_step_process_runs_under_it_too_and_has_a_provider_of_its_own(
    runner: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    seen = value(runner, isolated.traced, TRACE + "b7ad6b7169203331-01", "d")
    assert seen == ["b7ad6b7169203331", "w/0"]
    assert value(runner, isolated.traced, "", "e") == ["0" * 16, "w/0"]
