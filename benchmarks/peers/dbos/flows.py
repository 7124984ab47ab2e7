"""DBOS' workflows."""

import os

import peerkit
from dbos import DBOS, DBOSConfig

config = DBOSConfig(
    name="bench", system_database_url=os.environ["PEER_DSN"], log_level="WARNING", application_version="v1"
)
DBOS(config=config)


@DBOS.step()
def noop(k):
    """A step that does nothing."""
    return {"i": k}


@DBOS.step()
def slow(n, k):
    """A step that takes its time."""
    return peerkit.slow_step(n, k)


@DBOS.workflow()
def five(n):
    """Five steps that do nothing."""
    for k in range(1, 6):
        noop(k)
    return n


@DBOS.workflow()
def five_slow(n):
    """Five steps that take their time."""
    for k in range(1, 6):
        slow(n, k)
    return n
