"""Where a shard's process begins. It loads nothing by itself: the parent names it, and needs nothing of a shard's."""

from __future__ import annotations

import gc
from multiprocessing.connection import Connection

__all__ = ["main"]


def main(hears: Connection, says: Connection) -> None:
    """Load what a shard is made of, then be one: see `child.main`."""
    gc.disable()  # modules stay: to look for garbage among them took a fifth of the time
    from stepwell.worker import child

    gc.freeze()
    gc.enable()
    child.main(hears, says)
