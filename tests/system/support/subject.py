"""Flows that the system tests run in real workers.

Each body appends one line to the journal (`STEPWELL_TEST_JOURNAL`), which outlives every kill. A held step runs until
its gate is open: a file in the folder `STEPWELL_TEST_GATES`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from stepwell import Retry, StepFailed, current_step, flow, gather, http, sleep, step, wait_for

QUICK = Retry(max_attempts=5, base=0.05)
GATE_POLL_SECONDS = 0.01
TICK_SECONDS = 0.05


def note() -> int:
    """Write down that this attempt's body runs; answers its number."""
    me = current_step()
    entry = {
        "execution": me.execution_id,
        "path": me.path,
        "attempt": me.attempt,
        "key": me.idempotency_key,
        "at": time.monotonic(),
        "pid": os.getpid(),
    }
    line = os.open(os.environ["STEPWELL_TEST_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(line, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(line)
    return me.attempt


def is_open(gate: str) -> bool:
    """Whether that gate, or the one of this process alone, has been opened."""
    folder = Path(os.environ["STEPWELL_TEST_GATES"])
    return (folder / gate).exists() or (folder / f"{gate}-{os.getpid()}").exists()


@step(retry=QUICK)
async def quick(word: str = "") -> str:
    """Works at once."""
    note()
    return word + "!"


@step(retry=QUICK)
async def shaky(failures: int) -> int:
    """Fails so many times, then works."""
    attempt = note()
    if attempt <= failures:
        raise ConnectionError(f"no answer to try {attempt}")
    return attempt


@step(retry=Retry(max_attempts=5, base=0.6))
def shaky_sync(failures: int) -> int:
    """The same on a thread, with a delay that outlasts the start of a worker."""
    attempt = note()
    if attempt <= failures:
        raise ConnectionError(f"no answer to try {attempt}")
    return attempt


@step(retry=Retry(max_attempts=2, base=0.05))
async def doomed() -> None:
    """Never works."""
    note()
    raise ValueError("sold out")


@step(retry=Retry(max_attempts=5, base=0.2))
async def hopeless() -> None:
    """Never works, with delays that a test can measure."""
    note()
    raise ValueError("always")


@step(retry=Retry(max_attempts=6, base=0.05, factor=1.0, jitter=0.0))
async def third_time_held(gate: str) -> int:
    """Fails; from its third try on it waits for its gate first."""
    attempt = note()
    while attempt >= 3 and not is_open(gate):
        await asyncio.sleep(GATE_POLL_SECONDS)
    if attempt < 5:
        raise ConnectionError(f"no answer to try {attempt}")
    return attempt


@step(retry=QUICK)
async def held(gate: str) -> int:
    """Runs until its gate is open; answers the process that it ran in."""
    note()
    while not is_open(gate):
        await asyncio.sleep(GATE_POLL_SECONDS)
    return os.getpid()


@step(retry=QUICK)
async def tick(gate: str) -> bool:
    """Takes 50 ms; answers whether its gate is open."""
    note()
    await asyncio.sleep(TICK_SECONDS)
    return is_open(gate)


def wait_until_open(gate: str) -> None:
    """Blocks its thread until the gate is open."""
    while not is_open(gate):
        time.sleep(GATE_POLL_SECONDS)


@step(retry=QUICK)
def held_sync(gate: str) -> int:
    """The same on a thread."""
    note()
    wait_until_open(gate)
    return os.getpid()


@step(retry=QUICK)
async def held_elsewhere(gate: str) -> int:
    """The same on a thread that the body itself asked for: cancelling the body does not end it."""
    note()
    await asyncio.to_thread(wait_until_open, gate)
    return os.getpid()


@step(retry=Retry(max_attempts=3, base=0.05))
async def paid(url: str, gate: str) -> str:
    """Has its effect, then fails until its gate is open."""
    note()
    await http.send("POST", url, json={"order": current_step().execution_id})
    if not is_open(gate):
        raise RuntimeError("the answer was lost")
    return "paid"


@step(retry=Retry(max_attempts=2, base=3600.0, cap=3600.0))
async def resting() -> None:
    """Backs off for an hour."""
    note()
    raise ConnectionError("come back later")


@flow
async def journey(word: str) -> dict[str, Any]:
    """All that a flow can wait for: steps in sequence and at once, a sleep, a signal, failures caught and not."""
    greeting = await quick(word)
    tries = await shaky(2)
    left, right, third = await gather(quick("left"), shaky(1), shaky_sync(1))
    await sleep(0.6)
    approval = await wait_for("approval")
    try:
        await doomed()
        failure = ""
    except StepFailed as failed:
        failure = f"{failed.message} after {failed.attempts}"
    last = await quick("last")
    return {
        "greeting": greeting,
        "tries": [tries, right, third],
        "words": [left, last],
        "approval": approval,
        "failure": failure,
    }


@flow
async def failing() -> None:
    """Its first step never works."""
    await hopeless()


@flow
async def failing_later() -> None:
    """Its second step never works."""
    await quick("first")
    await hopeless()


@flow
async def persistent(gate: str) -> int:
    """One step that needs five tries."""
    return await third_time_held(gate)


@flow
async def payment(url: str, gate: str) -> str:
    """One payment."""
    return await paid(url, gate)


@flow
async def holding(gate: str) -> list[Any]:
    """A step that runs until its gate is open, and one after it."""
    return [await held(gate), await quick("after")]


@flow
async def ticking(gate: str) -> int:
    """Step after step until the gate is open; answers how many."""
    ticks = 1
    while not await tick(gate):
        ticks += 1
    return ticks


@flow
async def holding_sync(gate: str) -> list[Any]:
    """The same with a step on a thread."""
    return [await held_sync(gate), await quick("after")]


@flow
async def holding_elsewhere(gate: str) -> list[Any]:
    """The same with a step whose work is on a thread of its own."""
    return [await held_elsewhere(gate), await quick("after")]


@flow
async def sleeper() -> None:
    """Sleeps for an hour."""
    await sleep(hours=1)


@flow
async def rester() -> None:
    """Backs off for an hour."""
    await resting()


@flow
async def chain(words: int = 3) -> int:
    """Steps in sequence."""
    for number in range(words):
        await quick(f"word {number}")
    return words


@flow
async def bumpy(failures: int = 1) -> int:
    """One step that fails a few times."""
    return await shaky(failures)
