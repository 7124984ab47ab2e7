"""The flows that are measured."""

from __future__ import annotations

import asyncio
import os
import time

from stepwell import Retry, current_step, flow, gather, sleep, step

__all__ = ["ATTEMPTS", "BACKOFF_JITTER", "BACKOFF_SECONDS", "FLOWS", "JOURNAL", "chain", "five", "stuck"]

JOURNAL = "STEPWELL_BENCH_JOURNAL"  # the file in which the steps of `takes` say when they run

ATTEMPTS = 3
BACKOFF_SECONDS = 10.0  # so long that a crowd of 10,000 is in its backoff at once
BACKOFF_JITTER = 0.5
QUICK_BACKOFF_SECONDS = 0.2
BLOB = "x" * 188  # with its quotes and key, a result of 200 bytes


@step
async def noop(turn: int) -> dict[str, int]:
    """A step that costs nothing, so that all that is measured is ours."""
    return {"turn": turn}


@step(isolation="process")
def noop_apart(turn: int) -> dict[str, int]:
    """A step that does nothing, in a process of its own."""
    return {"turn": turn}


@step
async def blob(turn: int) -> dict[str, str]:
    """A step with a result of 200 bytes."""
    return {"blob": BLOB}


@step
async def carries(turn: int, size: int) -> str:
    """A step with a result of so many bytes."""
    return "x" * size


@step(retry=Retry(base=3600, cap=7200))
async def never() -> None:
    """A step that fails, and is tried again in an hour."""
    raise RuntimeError("the receiver is down")


@flow
async def five() -> int:
    """Five steps in a row, each using the one before."""
    turn = 0
    for _ in range(5):
        turn = (await noop(turn))["turn"] + 1
    return turn


@flow
async def five_apart() -> int:
    """The same in processes of their own."""
    turn = 0
    for _ in range(5):
        turn = (await noop_apart(turn))["turn"] + 1
    return turn


@flow
async def chain(steps: int) -> int:
    """As many steps in a row as asked for."""
    for turn in range(steps):
        await noop(turn)
    return steps


@flow
async def stuck() -> None:
    """Three results, then a long backoff."""
    for turn in range(3):
        await blob(turn)
    await never()


@flow
async def rests(note: str) -> None:
    """One result, then a long sleep."""
    await blob(0)
    await sleep(hours=1)


@flow
async def backs_off(note: str) -> None:
    """One result, then a long backoff."""
    await blob(0)
    await never()


@flow
async def naps(seconds: float) -> None:
    """A sleep."""
    await sleep(seconds)


_LEFT: dict[str, tuple[float, list[float]]] = {}  # per execution: when its last attempt ended, and the pauses before


def _fail_but_last() -> list[float]:
    """The pauses between attempts, in ms of the monotonic clock, at the last one; the others fail."""
    began, own = time.monotonic(), current_step()
    left, pauses = _LEFT.pop(own.execution_id, (began, []))
    if own.attempt > 1:
        pauses.append((began - left) * 1000)
    if own.attempt < ATTEMPTS:
        _LEFT[own.execution_id] = (time.monotonic(), pauses)
        raise RuntimeError("the receiver is down")
    return pauses


@step(retry=Retry(max_attempts=ATTEMPTS, base=BACKOFF_SECONDS, factor=1, jitter=BACKOFF_JITTER))
async def fails() -> list[float]:
    """A step that succeeds at its last attempt, and tells how long the pauses were."""
    return _fail_but_last()


@step(retry=Retry(max_attempts=ATTEMPTS, base=QUICK_BACKOFF_SECONDS, factor=1, jitter=BACKOFF_JITTER))
async def fails_soon() -> list[float]:
    """The same, for who only wants to see that it works."""
    return _fail_but_last()


@flow
async def fails_often() -> None:
    """Some retries."""
    await fails()


@flow
async def fails_often_soon() -> None:
    """Some retries, soon."""
    await fails_soon()


@flow
async def five_loads(size: int) -> None:
    """Five steps with a result of so many bytes each."""
    for turn in range(5):
        await carries(turn, size)


@flow
async def fans(branches: int) -> int:
    """As many steps at once as asked for."""
    return len(await gather(*[noop(turn) for turn in range(branches)]))


def _note(what: str) -> None:
    own = current_step()
    line = f"{time.monotonic():.6f} {what} {os.getpid()} {own.execution_id} {own.path}\n"
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


@step
async def takes(seconds: float) -> None:
    """A step that takes so long, and says when it began and ended."""
    _note("began")
    await asyncio.sleep(seconds)
    _note("ended")


@flow
async def five_naps(seconds: float) -> None:
    """Five such steps."""
    for _ in range(5):
        await takes(seconds)


@flow
async def many_naps(seconds: float) -> None:
    """Such steps for as long as anybody looks."""
    for _ in range(1000):
        await takes(seconds)


FLOWS = (
    five,
    five_apart,
    five_loads,
    fans,
    chain,
    stuck,
    rests,
    backs_off,
    naps,
    fails_often,
    fails_often_soon,
    five_naps,
    many_naps,
)
