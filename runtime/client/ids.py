"""Ids for executions and commands: unique without asking anybody, and in the order of their making."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable

from stepwell.core.clock import Clock

__all__ = ["new_ids"]


def new_ids(clock: Clock, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> Callable[[], str]:
    """A maker of version 7 UUIDs: 48 bits of the clock's milliseconds, 74 random bits.

    Ids of different milliseconds sort in the order of their making.
    """

    def new_id() -> str:
        bits = int.from_bytes(random_bytes(10), "big")
        low = (bits & (1 << 62) - 1) | 0b10 << 62
        middle = (bits >> 62 & 0xFFF) | 0x7 << 12
        return str(uuid.UUID(int=clock.now_ms() << 80 | middle << 64 | low))

    return new_id
