"""Load for Absurd: tasks spawned by eight threads; ends are noticed by counting rows."""

import os
import threading
import time

import peerkit
import psycopg
from absurd_sdk import Absurd

DSN = os.environ["PEER_DSN"]
link = psycopg.connect(DSN, autocommit=True)
local = threading.local()


def spawn(name, n):
    """One task."""
    if not hasattr(local, "app"):
        local.app = Absurd(DSN, queue_name="bench")
    return local.app.spawn(name, {"n": n}, queue="bench")


def completed():
    """How many tasks have."""
    return link.execute("select count(*) from absurd.t_bench where state = 'completed'").fetchone()[0]


def throughput(numbers, in_flight):
    """All at once."""
    wanted = completed() + len(numbers)
    peerkit.in_threads(numbers, 8, lambda n: spawn("five", n))
    while completed() < wanted:
        time.sleep(0.05)


def one(n):
    """One task, looked at each millisecond."""
    task = spawn("five", n)["task_id"]
    while True:
        found = link.execute("select state from absurd.t_bench where task_id = %s", (task,)).fetchone()
        if found and found[0] == "completed":
            return
        time.sleep(0.001)


peerkit.serve(throughput, one, lambda numbers: peerkit.in_threads(numbers, 8, lambda n: spawn("five_slow", n)))
