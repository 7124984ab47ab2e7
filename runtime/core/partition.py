"""Which partition an execution belongs to: Redis' CRC16 of its id, modulo the namespace's partition count."""

from __future__ import annotations

import binascii
from collections.abc import Iterable

DEFAULT_PARTITIONS = 64


def partition_of(execution_id: str, partitions: int) -> int:
    """The partition (0 <= p < partitions) of an execution.

    CRC16/XMODEM is the hash that Redis Cluster uses for slots (polynomial 0x1021, start value 0).
    """
    return binascii.crc_hqx(execution_id.encode(), 0) % partitions


def ranges(partitions: Iterable[int]) -> str:
    """Some partitions in short: `0-15, 17, 40-63`."""
    parts: list[list[int]] = []
    for partition in sorted(partitions):
        if parts and parts[-1][1] == partition - 1:
            parts[-1][1] = partition
        else:
            parts.append([partition, partition])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
