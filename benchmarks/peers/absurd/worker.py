"""Absurd's workers: eight threads, each with a connection of its own."""

import os
import threading

import peerkit
from absurd_sdk import Absurd

THREADS = int(os.environ["PEER_THREADS"])


def made():
    """One worker's application."""
    app = Absurd(os.environ["PEER_DSN"], queue_name="bench")

    @app.register_task(name="five")
    def five(params, ctx):
        for k in range(1, 6):
            ctx.step(f"s{k}", lambda k=k: {"i": k})
        return params["n"]

    @app.register_task(name="five_slow")
    def five_slow(params, ctx):
        for k in range(1, 6):
            ctx.step(f"s{k}", lambda k=k: peerkit.slow_step(params["n"], k))
        return params["n"]

    return app


for number in range(THREADS):
    settings = {"worker_id": f"{os.getpid()}-{number}", "claim_timeout": 120, "concurrency": 1, "batch_size": 10}
    threading.Thread(target=made().start_worker, kwargs=settings, daemon=True).start()
peerkit.ready()
threading.Event().wait()
