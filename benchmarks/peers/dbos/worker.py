"""A worker of DBOS that takes workflows from a queue."""

import threading

import flows  # noqa: F401  (registers the workflows)
import peerkit
from dbos import DBOS

DBOS.launch()
DBOS.register_queue("bench", worker_concurrency=50)
peerkit.ready()
threading.Event().wait()
