"""Load for taskiq."""

import asyncio

import peerkit
import redis.asyncio
from tasks import URL, broker, noop, slow

store = redis.asyncio.from_url(URL)


async def submit(task, prefix, n):
    """The first task of one chain."""
    await task.kicker().with_task_id(f"{prefix}{n}:1").kiq(str(n), 1)


async def there(keys):
    """Which results are there."""
    return [value is not None for value in await store.mget(keys)]


async def throughput(numbers, in_flight):
    """All at once, 50 at a time."""
    await peerkit.keep_in_flight(numbers, 50, lambda n: submit(noop, "", n))
    await peerkit.async_wait_for_keys([f"{n}:5" for n in numbers], there)


async def one(n):
    """One chain."""
    await submit(noop, "", n)
    while not await store.exists(f"{n}:5"):
        await asyncio.sleep(0.002)


async def start(numbers):
    """Slow chains."""
    for n in numbers:
        await submit(slow, "s", n)


async def main():
    """Answer the runner."""
    await broker.startup()
    await peerkit.async_serve(throughput, one, start)
    await broker.shutdown()


asyncio.run(main())
