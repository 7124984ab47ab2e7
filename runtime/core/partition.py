"""Which partition an execution belongs to: Redis' CRC16 of its id, modulo the namespace's partition count."""

from __future__ import annotations

import binascii

DEFAULT_PARTITIONS = 64


def partition_of(execution_id: str, partitions: int) -> int:
    """The partition (0 <= p < partitions) of an execution.

    CRC16/XMODEM is the hash that Redis Cluster uses for slots (polynomial 0x1021, start value 0).
    """
    return binascii.crc_hqx(execution_id.encode(), 0) % partitions
