"""The flow of the storm: five steps of 50 ms, each with an effect on the receiver."""

from __future__ import annotations

import asyncio
import json
import os
import time

from stepwell import Retry, current_step, flow, http, step

STEPS = 5
STEP_SECONDS = 0.05


def note() -> None:
    """Write down that this body begins now (wall clock, ms)."""
    me = current_step()
    entry = {
        "execution": me.execution_id,
        "path": me.path,
        "key": me.idempotency_key,
        "at_ms": time.time() * 1000,
        "pid": os.getpid(),
    }
    line = os.open(os.environ["STEPWELL_TEST_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(line, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(line)


@step(retry=Retry(max_attempts=10, base=0.1), timeout=60)
async def port_of_call(url: str) -> int:
    """Takes its time, then has its effect."""
    note()
    await asyncio.sleep(STEP_SECONDS)
    me = current_step()
    answer = await http.send("POST", url, json={"execution": me.execution_id, "path": me.path})
    return int(answer.json()["effect"])


@flow
async def voyage(url: str) -> list[int]:
    """One port after another."""
    effects = []
    for _ in range(STEPS):
        effects.append(await port_of_call(url))
    return effects
