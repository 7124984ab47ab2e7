"""Dramatiq's actors: a pipeline of five, results stored."""

import os

import dramatiq
import peerkit
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

PORT = int(os.environ["PEER_PORT"])
backend = RedisBackend(host="127.0.0.1", port=PORT, db=1)
broker = RedisBroker(host="127.0.0.1", port=PORT)
broker.add_middleware(Results(backend=backend))


class Ready(dramatiq.Middleware):
    """Tells the runner."""

    def after_worker_boot(self, broker, worker):
        """The worker takes messages."""
        peerkit.ready()


broker.add_middleware(Ready())
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def first(k):
    """The first of a pipeline."""
    return {"i": k}


@dramatiq.actor(store_results=True)
def noop(k, previous):
    """One that gets its predecessor's result."""
    return {"i": k}


@dramatiq.actor(store_results=True)
def slow_first(n, k):
    """The first that takes its time."""
    return peerkit.slow_step(n, k)


@dramatiq.actor(store_results=True)
def slow(n, k, previous):
    """One that takes its time."""
    return peerkit.slow_step(n, k)
