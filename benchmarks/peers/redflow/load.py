"""Load for redflow, by its own client."""

import asyncio
import os

import flows
import peerkit
from redflow import create_client, set_default_client


async def one(n):
    """One run, and its result."""
    handle = await flows.five.run({"n": n})
    await handle.result(timeout_ms=120_000)


async def start(numbers):
    """Slow runs."""
    for n in numbers:
        await flows.five_slow.run({"n": n})


async def main():
    """Answer the runner."""
    set_default_client(create_client(url=os.environ["PEER_URL"]))
    await peerkit.async_serve(lambda numbers, width: peerkit.keep_in_flight(numbers, width, one), one, start)


asyncio.run(main())
