"""Load for streaq."""

import asyncio
import os

os.environ["PEER_LOAD"] = "1"

import peerkit
from tasks import first, noop, slow, slow_first, worker


async def flow():
    """Submit one chain."""
    task = first.enqueue(1)
    for k in range(2, 6):
        task = task.then(noop, k=k)
    return await task


async def one(n):
    """One chain and its result."""
    await (await flow()).result(timeout=60)


async def throughput(numbers, in_flight):
    """All at once, 20 at a time; ends are noticed by asking for the last results."""
    tasks = []

    async def submit(n):
        tasks.append(await flow())

    async def there(keys):
        return [await worker.redis.exists([key]) for key in keys]

    await peerkit.keep_in_flight(numbers, 20, submit)
    await peerkit.async_wait_for_keys([worker.results_key + task.id for task in tasks], there, batch=20)


async def start(numbers):
    """Slow chains."""
    for n in numbers:
        task = slow_first.enqueue(n, 1)
        for k in range(2, 6):
            task = task.then(slow, n=n, k=k)
        await task


async def main():
    """Answer the runner."""
    async with worker:
        await peerkit.async_serve(throughput, one, start)


asyncio.run(main())
