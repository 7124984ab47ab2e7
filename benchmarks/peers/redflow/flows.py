"""redflow's workflows."""

import peerkit
from redflow import workflow

LIMIT = 1000  # its default lets one run of a workflow go on at a time


async def noop(k, *, signal=None):
    """A step that does nothing."""
    return {"i": k}


async def slow(n, k, *, signal=None):
    """A step that takes its time."""
    return await peerkit.async_slow_step(n, k)


@workflow("five", queue="default", max_attempts=3, max_concurrency=LIMIT)
async def five(ctx):
    """Five steps that do nothing."""
    for k in range(1, 6):
        await ctx.step.run(f"s{k}", noop, k)
    return {"ok": True}


@workflow("five_slow", queue="default", max_attempts=3, max_concurrency=LIMIT)
async def five_slow(ctx):
    """Five steps that take their time."""
    for k in range(1, 6):
        await ctx.step.run(f"s{k}", slow, ctx.input["n"], k)
    return {"ok": True}
