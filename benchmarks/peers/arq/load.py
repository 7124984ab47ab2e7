"""Load for arq."""

import asyncio

import peerkit
from arq import create_pool
from arq.constants import result_key_prefix
from tasks import SETTINGS


async def main():
    """Answer the runner."""
    pool = await create_pool(SETTINGS)

    async def there(keys):
        return [value is not None for value in await pool.mget(keys)]

    async def throughput(numbers, in_flight):
        await peerkit.keep_in_flight(numbers, 50, lambda n: pool.enqueue_job("noop", n, 1, _job_id=f"{n}:1"))
        await peerkit.async_wait_for_keys([f"{result_key_prefix}{n}:5" for n in numbers], there)

    async def one(n):
        await pool.enqueue_job("noop", n, 1, _job_id=f"{n}:1")
        while not await pool.exists(f"{result_key_prefix}{n}:5"):
            await asyncio.sleep(0.002)

    async def start(numbers):
        for n in numbers:
            await pool.enqueue_job("slow", n, 1, _job_id=f"s{n}:1")

    await peerkit.async_serve(throughput, one, start)


asyncio.run(main())
