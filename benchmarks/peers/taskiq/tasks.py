"""taskiq's tasks on Redis streams: each one kiqs the next."""

import os

import peerkit
from taskiq import TaskiqEvents
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = os.environ["PEER_URL"]
broker = RedisStreamBroker(URL).with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=3600))


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def _up(state):
    peerkit.ready()


@broker.task
async def noop(n: str, k: int) -> dict:
    """A task that does nothing."""
    if k < 5:
        await noop.kicker().with_task_id(f"{n}:{k + 1}").kiq(n, k + 1)
    return {"i": k}


@broker.task
async def slow(n: str, k: int) -> dict:
    """A task that takes its time."""
    await peerkit.async_slow_step(n, k)
    if k < 5:
        await slow.kicker().with_task_id(f"s{n}:{k + 1}").kiq(n, k + 1)
    return {"i": k}
