"""Load for Dramatiq: pipelines of five."""

import peerkit
from tasks import backend, first, noop, slow, slow_first


def flow():
    """Submit one pipeline."""
    pipe = first.message(1)
    for k in range(2, 6):
        pipe = pipe | noop.message(k)
    return pipe.run()


def stored(keys):
    """Which results are there."""
    pipeline = backend.client.pipeline(transaction=False)
    for key in keys:
        pipeline.exists(key)
    return pipeline.execute()


def throughput(numbers, in_flight):
    """All at once; ends are noticed by asking Redis for the last results, which is cheaper than `get_result`."""
    pipes = [flow() for _ in numbers]
    peerkit.wait_for_keys([backend.build_message_key(pipe.messages[-1]) for pipe in pipes], stored)


def start(numbers):
    """Slow pipelines."""
    for n in numbers:
        pipe = slow_first.message(n, 1)
        for k in range(2, 6):
            pipe = pipe | slow.message(n, k)
        pipe.run()


peerkit.serve(throughput, lambda n: flow().get_result(block=True, timeout=60_000), start)
