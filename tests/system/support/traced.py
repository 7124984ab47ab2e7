"""Flows whose steps make spans of their own, in each way to run a step, and send a request."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opentelemetry import trace

from stepwell import Retry, flow, step
from stepwell.http import request

GATES = Path(os.environ["STEPWELL_TEST_GATES"])
SOON = Retry(max_attempts=3, base=0.05)
pay = request.with_options(name="pay", retry=SOON)


def own_span(name: str) -> None:
    with trace.get_tracer("users").start_as_current_span(name):
        pass


@step
async def loop() -> None:
    own_span("in a task")


@step
def thread() -> None:
    own_span("in a thread")


@step(isolation="process")
def process() -> None:
    own_span("in a process")


@step
def held() -> None:
    own_span("while held")
    (GATES / "began").touch()
    while not (GATES / "open").exists():
        time.sleep(0.01)


@flow
async def traced() -> str:
    await loop()
    await thread()
    await process()
    await pay("POST", os.environ["STEPWELL_TEST_SHOP"])
    await held()
    return "done"
