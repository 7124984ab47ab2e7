"""arq's jobs: each one enqueues the next."""

import os

import peerkit
from arq.connections import RedisSettings

SETTINGS = RedisSettings(host="127.0.0.1", port=int(os.environ["PEER_PORT"]))


async def noop(ctx, n, k):
    """A job that does nothing."""
    if k < 5:
        await ctx["redis"].enqueue_job("noop", n, k + 1, _job_id=f"{n}:{k + 1}")
    return {"i": k}


async def slow(ctx, n, k):
    """A job that takes its time."""
    await peerkit.async_slow_step(n, k)
    if k < 5:
        await ctx["redis"].enqueue_job("slow", n, k + 1, _job_id=f"s{n}:{k + 1}")
    return {"i": k}


async def up(ctx):
    """Tell the runner."""
    peerkit.ready()


class WorkerSettings:
    """What arq reads."""

    functions = (noop, slow)
    redis_settings = SETTINGS
    on_startup = up
    max_jobs = 200
    health_check_interval = 3600
