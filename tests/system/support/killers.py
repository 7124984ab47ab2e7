"""Flows and steps that kill the process that runs them, and innocent ones; journal and gates are those of `subject`."""

from __future__ import annotations

import asyncio
import ctypes
import os

from subject import is_open, note, quick

from stepwell import Retry, flow, step

MENDED = "mended"
"""The gate that is open once the code is mended."""


@step(retry=Retry(max_attempts=3, base=0.05))
async def killer() -> None:
    """Ends whatever process it runs in."""
    note()
    os._exit(137)


@step(retry=Retry(max_attempts=3, base=0.05))
def killer_on_a_thread() -> None:
    """The same with a fatal signal, on a thread of its own."""
    note()
    ctypes.string_at(0)


@step
async def works(number: int) -> int:
    """Takes a moment."""
    note()
    await asyncio.sleep(0.05)
    return number


@flow
async def kills(sync: bool = False) -> None:
    """Has a step that kills its process."""
    await (killer_on_a_thread() if sync else killer())


@flow
async def hangs() -> str:
    """Never comes back from being driven, as long as it is not mended."""
    word = await quick("well")
    while not is_open(MENDED):
        pass
    return word


@flow
async def crashes() -> str:
    """Crashes in C while it is driven, as long as it is not mended."""
    word = await quick("well")
    if not is_open(MENDED):
        ctypes.string_at(0)
    return word


@flow
async def innocent(steps: int = 3) -> int:
    """Does its work."""
    return sum([await works(number) for number in range(steps)])
