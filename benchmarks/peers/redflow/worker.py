"""redflow's worker."""

import asyncio
import os

import flows  # noqa: F401  (registers the workflows)
import peerkit
from redflow import StartWorkerOptions, start_worker


async def main():
    """Run until killed."""
    await start_worker(
        StartWorkerOptions(app="bench", url=os.environ["PEER_URL"], concurrency=int(os.environ["PEER_CONCURRENCY"]))
    )
    peerkit.ready()
    await asyncio.Event().wait()


asyncio.run(main())
