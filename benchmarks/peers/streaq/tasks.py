"""streaq's tasks: chains of five by `then`."""

import os
from contextlib import asynccontextmanager

import peerkit
from streaq import Worker


@asynccontextmanager
async def life():
    """Tell the runner."""
    if not os.environ.get("PEER_LOAD"):
        peerkit.ready()
    yield


worker = Worker(redis_url=os.environ["PEER_URL"], concurrency=100, lifespan=life)


@worker.task
async def first(k: int) -> dict:
    """The first of a chain."""
    return {"i": k}


@worker.task
async def noop(previous: dict, k: int) -> dict:
    """One that gets its predecessor's result."""
    return {"i": k}


@worker.task
async def slow_first(n: int, k: int) -> dict:
    """The first that takes its time."""
    return await peerkit.async_slow_step(n, k)


@worker.task
async def slow(previous: dict, n: int, k: int) -> dict:
    """One that takes its time."""
    return await peerkit.async_slow_step(n, k)
