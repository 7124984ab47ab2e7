"""DBOS within an application, whose threads call workflows and wait for them, as a web server's handlers do."""

import os

import flows
import peerkit
from dbos import DBOS

THREADS = int(os.environ["PEER_THREADS"])

DBOS.launch()
peerkit.serve(lambda numbers, in_flight: peerkit.in_threads(numbers, THREADS, flows.five), flows.five)
DBOS.destroy()
