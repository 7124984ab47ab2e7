"""How full the server is, and what that keeps from working."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["Memory"]

FULL: Final = 0.99
NEARLY_FULL: Final = 0.9
"""Shares of the server's `maxmemory`. What is refused is not counted as used, so it stays a little below the limit."""


class Memory(msgspec.Struct, frozen=True):
    """Bytes that the server uses, of as many as it may: its `maxmemory`. In a cluster it is one of its masters that
    tells."""

    used: int
    limit: int

    @property
    def full(self) -> bool:
        """Whether it refuses writes, as far as these numbers tell."""
        return self.used >= FULL * self.limit

    @property
    def nearly_full(self) -> bool:
        """Whether it will soon."""
        return not self.full and self.used >= NEARLY_FULL * self.limit

    @property
    def told(self) -> str:
        """For a person."""
        return f"{self.used / 2**20:,.1f} of {self.limit / 2**20:,.1f} MiB"
