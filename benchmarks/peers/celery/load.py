"""Load for Celery: chains of five."""

import peerkit
from celery import chain
from tasks import app, first, noop, slow, slow_first


def flow():
    """Submit one chain."""
    return chain(first.s(1), *[noop.s(k) for k in range(2, 6)]).apply_async()


def throughput(numbers, in_flight):
    """All at once; ends are noticed by asking Redis for the last results, which is cheaper than `get`."""
    results = [flow() for _ in numbers]
    redis = app.backend.client
    keys = [app.backend.get_key_for_task(result.id) for result in results]
    peerkit.wait_for_keys(keys, lambda batch: [value is not None for value in redis.mget(batch)])


def start(numbers):
    """Slow chains."""
    for n in numbers:
        chain(slow_first.s(n, 1), *[slow.s(n, k) for k in range(2, 6)]).apply_async()


peerkit.serve(throughput, lambda n: flow().get(timeout=60), start)
