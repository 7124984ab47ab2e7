"""Processes that run flows: `Worker` inside one's own program, or `stepwell run`."""

from stepwell.worker.worker import Worker

__all__ = ["Worker"]
