"""What a server that keeps an append-only file has acknowledged but not written yet."""

from __future__ import annotations

from typing import Any

import redis


def written(client: Any) -> bool:
    """Whether the kernel has all that was acknowledged: only then a `kill -9` of the server loses nothing.

    With `appendfsync everysec` a server holds writes back for up to 2 s while an fsync goes on, as on a busy disk.
    """
    try:
        return int(client.info("persistence")["aof_buffer_length"]) == 0
    except redis.ConnectionError:
        return False
