"""Stepwell's flows."""

import peerkit

from stepwell import flow, step


@step
async def noop(k: int) -> dict[str, int]:
    """A step that does nothing."""
    return {"i": k}


@step
async def slow(n: int, k: int) -> dict[str, int]:
    """A step that takes its time."""
    return await peerkit.async_slow_step(n, k)


@flow
async def five(n: int) -> int:
    """Five steps that do nothing."""
    for k in range(1, 6):
        await noop(k)
    return n


@flow
async def five_slow(n: int) -> int:
    """Five steps that take their time."""
    for k in range(1, 6):
        await slow(n, k)
    return n
