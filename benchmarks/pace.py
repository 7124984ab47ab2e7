"""A client that does one thing after the other."""

from __future__ import annotations

import time

from benchmarks.flows import five
from stepwell import Client

__all__ = ["one_at_a_time"]


def one_at_a_time(url: str, count: int) -> list[float]:
    """Milliseconds from `start` to the result of a five-step flow, for `count` executions in a row."""
    taken = []
    with Client(url) as client:
        for _ in range(count):
            began = time.perf_counter()
            client.result(client.start(five), timeout=60)
            taken.append((time.perf_counter() - began) * 1000)
    return taken
