"""What a process uses, as Linux tells it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Usage", "usage_of"]

_TICKS: Final = os.sysconf("SC_CLK_TCK") if "SC_CLK_TCK" in os.sysconf_names else 100
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if "SC_PAGE_SIZE" in os.sysconf_names else 4096


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: which it is (no other one ever has that name on this host), CPU seconds, bytes in memory."""

    name: str
    cpu_seconds: float
    resident_bytes: int


def usage_of(pid: int) -> Usage | None:
    """Also of one that has ended and is not buried yet; None where there is none, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Usage(f"{pid} {fields[19]}", ticks / _TICKS, int(fields[21]) * _PAGE)
    except (OSError, ValueError, IndexError):
        return None
