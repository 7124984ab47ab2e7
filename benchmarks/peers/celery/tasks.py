"""Celery's tasks: a chain of five."""

import os

import peerkit
from celery import Celery
from celery.signals import worker_ready

URL = os.environ["PEER_URL"]
app = Celery("tasks", broker=f"{URL}/0", backend=f"{URL}/1")
app.conf.worker_send_task_events = False
app.conf.broker_connection_retry_on_startup = True
if os.environ.get("PEER_ACKS_LATE"):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


@app.task
def first(k):
    """The first of a chain."""
    return {"i": k}


@app.task
def noop(previous, k):
    """One that gets its predecessor's result."""
    return {"i": k}


@app.task
def slow_first(n, k):
    """The first that takes its time."""
    return peerkit.slow_step(n, k)


@app.task
def slow(previous, n, k):
    """One that takes its time."""
    return peerkit.slow_step(n, k)


@worker_ready.connect
def _up(**_):
    peerkit.ready()
