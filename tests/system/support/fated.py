"""Flows of which every attempt asks a receiver what becomes of it, and does that.

The receiver (`fates.FateReceiver`) has planned it all, and keeps a record of what it was asked and what it answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from unhurried import unhurried  # of this file's folder

from stepwell import (
    FatalError,
    Retry,
    RetryAfter,
    StepFailed,
    StepTimeout,
    current_step,
    flow,
    gather,
    http,
    step,
    wait_for,
)

ASK_SECONDS = 600.0
HURRY_SECONDS = 2.0
# What a machine that is busy elsewhere needs for a body with nothing to do.
HURRY_SECONDS_APART = 15.0
GATE_SECONDS = 0.01


class Hopeless(Exception):
    """Given up on at once."""


class Uncalled(Exception):
    """Not among those that are tried again."""


PASSING = Retry(max_attempts=4, base=0.04, jitter=0.3, give_up_on=(Hopeless,))
PATIENT = Retry(max_attempts=3, base=600.0, cap=3600.0, give_up_on=(Hopeless,))
STRICT = Retry(max_attempts=3, base=0.04, give_up_on=(StepTimeout,), retry_on=(OSError,))


def _asked() -> dict[str, object]:
    me = current_step()
    return {
        "execution": me.execution_id,
        "flow": me.flow,
        "step": me.step,
        "path": me.path,
        "attempt": me.attempt,
        "key": me.idempotency_key,
        "pid": os.getpid(),
    }


async def ask(url: str) -> dict[str, Any]:
    """What becomes of this attempt. An answer that is an error is the attempt's error."""
    answer = await http.send("POST", url, json=_asked(), timeout=ASK_SECONDS)
    fate: dict[str, Any] = answer.json()
    return fate


def ask_blocking(url: str) -> dict[str, Any]:
    """The same for a body that is no coroutine; the receiver sends no errors to those."""
    sent = urllib.request.Request(url, json.dumps(_asked()).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=ASK_SECONDS) as answer:
        fate: dict[str, Any] = json.load(answer)
    return fate


def is_to_hang(fate: dict[str, Any]) -> bool:
    """Until its timeout."""
    return bool(fate["fate"] == "timeout")


def meet(fate: dict[str, Any]) -> object:
    """What a body returns or raises."""
    word = fate["fate"]
    if word == "ok":
        return fate.get("value", "done")
    if word == "error":
        raise ConnectionError("no answer")
    if word == "after":
        raise RetryAfter(0.15, "not now")
    if word == "fatal":
        raise FatalError("never")
    if word == "hopeless":
        raise Hopeless("given up on")
    if word == "large":
        return "x" * (2 << 20)
    if word == "odd":
        return threading.Lock()
    if word == "crash":
        os._exit(137)
    raise AssertionError(f"nobody knows the fate {word!r}")


@step(retry=PASSING)
async def errand(url: str) -> object:
    """On the event loop."""
    return meet(await ask(url))


@step(retry=PASSING)
def errand_on_a_thread(url: str) -> object:
    """On a thread."""
    return meet(ask_blocking(url))


@step(retry=PASSING, isolation="process")
def errand_apart(url: str) -> object:
    """In a process of its own."""
    return meet(ask_blocking(url))


@step(retry=PASSING, timeout=HURRY_SECONDS)
async def hurried(url: str) -> object:
    """Has a timeout."""
    return meet(await unhurried(ask(url), is_to_hang))


@step(retry=PASSING, timeout=HURRY_SECONDS_APART, isolation="process")
def hurried_apart(url: str) -> object:
    """The same in a process of its own, which is killed then."""
    fate = ask_blocking(url)
    if is_to_hang(fate):
        time.sleep(ASK_SECONDS)
    return meet(fate)


@step(retry=STRICT, timeout=HURRY_SECONDS)
async def strict(url: str) -> object:
    """Tries again after few errors, and not after a timeout."""
    fate = await unhurried(ask(url), is_to_hang)
    if fate["fate"] == "uncalled":
        raise Uncalled("not to be tried again")
    return meet(fate)


@step(retry=PATIENT)
async def patient(url: str) -> object:
    """Backs off for ten minutes."""
    return meet(await ask(url))


STEPS = {
    each.name: each for each in (errand, errand_on_a_thread, errand_apart, hurried, hurried_apart, strict, patient)
}


@flow
async def route(url: str, steps: list[str]) -> list[Any]:
    """One step after another."""
    return [await STEPS[name](url) for name in steps]


@flow
async def detour(url: str, steps: list[str]) -> list[Any]:
    """The same, and a step that fails does not end it."""
    results: list[Any] = []
    for name in steps:
        try:
            results.append(await STEPS[name](url))
        except StepFailed as failed:
            results.append(failed.attempts)
    return results


@flow
async def abreast(url: str, steps: list[str]) -> list[Any]:
    """All steps at once."""
    return list(await gather(*(STEPS[name](url) for name in steps)))


@flow
async def talk(url: str, steps: list[str]) -> list[Any]:
    """Waits for a signal before each step."""
    results = []
    for name in steps:
        await wait_for("go")
        results.append(await STEPS[name](url))
    return results


@flow
async def fickle(url: str, steps: list[str]) -> list[Any]:
    """Its code is another one while the gate `fickle` is open."""
    other = (Path(os.environ["STEPWELL_TEST_GATES"]) / "fickle").exists()
    return [await STEPS["errand_on_a_thread" if other else name](url) for name in steps]


@step(retry=Retry(max_attempts=2, base=0.0))
async def unlucky(number: int) -> None:
    """Fails with an error of a type and a message that no other has."""
    raise type(f"Error{number}", (Exception,), {})(f"message {number} of {os.urandom(8).hex()}")


@flow
async def misfortune(number: int) -> None:
    """One such step."""
    await unlucky(number)


@step
async def fine(gate: str) -> int:
    """Works once its gate is open: a file in the folder of the gates."""
    while not (Path(os.environ["STEPWELL_TEST_GATES"]) / gate).exists():
        await asyncio.sleep(GATE_SECONDS)
    return 1


@flow
async def fortune(gate: str) -> int:
    """One such step."""
    return await fine(gate)
