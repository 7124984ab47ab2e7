"""Restate's service: one handler with five recorded runs."""

import peerkit
import restate

bench = restate.Service("Bench")


async def noop(k):
    """A step that does nothing."""
    return {"i": k}


@bench.handler()
async def five(ctx: restate.Context, n: int) -> int:
    """Five steps that do nothing."""
    for k in range(1, 6):
        await ctx.run_typed(f"s{k}", noop, restate.RunOptions(), k)
    return n


@bench.handler()
async def five_slow(ctx: restate.Context, n: int) -> int:
    """Five steps that take their time."""
    for k in range(1, 6):
        await ctx.run_typed(f"s{k}", peerkit.async_slow_step, restate.RunOptions(), n, k)
    return n


app = restate.app([bench])
peerkit.ready()
