"""Puts workflows into DBOS' queue from another process."""

import os

import peerkit
from dbos import DBOSClient

client = DBOSClient(system_database_url=os.environ["PEER_DSN"])


def start(numbers):
    """Slow workflows."""
    for n in numbers:
        client.enqueue({"queue_name": "bench", "workflow_name": "five_slow", "app_version": "v1"}, n)


peerkit.serve(None, None, start)
os._exit(0)
