"""What a shard is told of its name and its limits: plain data, which its parent writes and its process reads."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.core.limits import Limits
from stepwell.worker.config import WorkerConfig

__all__ = ["ShardSettings", "settings_of"]


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """What a shard is told of its name and its limits.

    Attributes:
        shard_id: its name among all shards.
        limits: its bounds.
        threads: sync step bodies at once.
        box: file of its black box; empty: none is kept.
        parent: the process that looks into its death (`host,boot,pid,start`); empty: nobody does.
        sheet: file that its parent has made for its metrics; empty: they are kept in memory.
        life: the how manieth process of the shard this is.
        otel: whether it makes spans; None: if its process' variables or its flows' modules say where they go.
    """

    shard_id: str
    limits: Limits
    threads: int
    box: str = ""
    parent: str = ""
    sheet: str = ""
    life: int = 1
    otel: bool | None = None


def settings_of(
    config: WorkerConfig, shard_id: str, box: str = "", parent: str = "", sheet: str = "", life: int = 1
) -> ShardSettings:
    """The settings of one shard of a worker."""
    return ShardSettings(shard_id, config.limits, config.threads, box, parent, sheet, life, config.otel)
