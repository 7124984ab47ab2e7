"""Load for plaita: starts go on its stream; that they have ended is noticed by the empty stream, or by the row."""

import json
import os
import time
import uuid
from datetime import datetime

import peerkit
import redis
from plaita.server.task_queue import enqueue_task

QUEUE = "plaita:flow:queue"
store = redis.Redis.from_url(os.environ["PEER_URL"])


def start(name, n):
    """Put one start on the stream; the execution's id."""
    execution = uuid.uuid4().hex
    body = {"type": "start", "flow_id": name, "version": "1", "params": {"n": n}, "execution_id": execution}
    enqueue_task(store, QUEUE, {**body, "timestamp": datetime.now().isoformat()})
    return execution


def throughput(numbers, in_flight):
    """All at once."""
    last = [start("five", n) for n in numbers]
    while store.xlen(QUEUE):
        time.sleep(0.02)
    ended = [json.loads(row)["status"] for row in store.mget([f"plaita:execution:{each}" for each in last])]
    if set(ended) != {"completed"}:
        raise RuntimeError(f"not all completed: {set(ended)}")


def one(n):
    """One execution."""
    key = f"plaita:execution:{start('five', n)}"
    while not (row := store.get(key)) or json.loads(row)["status"] != "completed":
        time.sleep(0.001)


def submit(numbers):
    """Slow ones."""
    for n in numbers:
        start("five_slow", n)


peerkit.serve(throughput, one, submit)
