"""Load for Stepwell: `python load.py thin|client SHARDS`.

`thin` creates in pipelined batches and hears the ends on one subscription, which costs as little as the other loads do;
`client` calls `AsyncClient.start` and `result` for each flow.
"""

import asyncio
import os
import sys
import time

import peerkit

from benchmarks.load import Load
from stepwell import AsyncClient, Client
from stepwell.store.connect import connect
from stepwell.store.keys import Keys
from stepwell.store.leases import LeaseStore, parse_lease
from stepwell.store.scripts import Scripts

URL = os.environ["PEER_URL"]


def wait_for_shards(count):
    """Until so many shards own partitions."""
    keys = Keys()
    with connect(URL) as redis:
        leases = LeaseStore(redis, keys, Scripts())
        owners = set()
        while len(owners) < count:
            time.sleep(0.05)
            held = leases.read(range(keys.partitions)).values()
            owners = {lease.owner for lease in map(parse_lease, held) if lease is not None}


async def by_client():
    """Three clients, as each waits for at most 100 results at once: a connection for each."""
    clients = [AsyncClient(URL) for _ in range(3)]

    async def one(n):
        client = clients[n % len(clients)]
        await client.result(await client.start("five", {"n": n}), timeout=60)

    async def start(numbers):
        for n in numbers:
            await clients[0].start("five_slow", {"n": n})

    await peerkit.async_serve(lambda numbers, width: peerkit.keep_in_flight(numbers, width, one), one, start)
    for client in clients:
        await client.close()


def thin():
    """Throughput by the load of our own suite, the rest by Client."""
    load = Load(URL, Keys(), Scripts(), "five", {"n": 1})
    with Client(URL) as client:

        def one(n):
            client.result(client.start("five", {"n": n}), timeout=60)

        def start(numbers):
            for n in numbers:
                client.start("five_slow", {"n": n})

        peerkit.serve(lambda numbers, width: load.run(len(numbers), width), one, start)


if __name__ == "__main__":
    if sys.argv[2] != "0":
        wait_for_shards(int(sys.argv[2]))
    if sys.argv[1] == "thin":
        thin()
    else:
        asyncio.run(by_client())
