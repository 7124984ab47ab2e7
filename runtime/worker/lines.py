"""What becomes of workers and shards, as log lines: each kind has a name and a level (docs/logs.md)."""

from __future__ import annotations

import logging
from typing import Final, Literal, TypeAlias

from stepwell.metrics.saying import say

__all__ = ["LEVELS", "Happening", "tell"]

Happening: TypeAlias = Literal[
    "ShardStarted",
    "ShardSlow",
    "ShardKilled",
    "ShardDied",
    "ShardExamined",
    "ShardRestarting",
    "ShardDraining",
    "StepsCutShort",
    "PartFailed",
    "WorkerStarted",
    "WorkerDraining",
    "WorkerStopped",
    "WorkerFailed",
]

LEVELS: Final[dict[Happening, int]] = {
    "ShardStarted": logging.INFO,
    "ShardSlow": logging.WARNING,
    "ShardKilled": logging.CRITICAL,
    "ShardDied": logging.ERROR,
    "ShardExamined": logging.WARNING,
    "ShardRestarting": logging.INFO,
    "ShardDraining": logging.INFO,
    "StepsCutShort": logging.WARNING,
    "PartFailed": logging.CRITICAL,
    "WorkerStarted": logging.INFO,
    "WorkerDraining": logging.INFO,
    "WorkerStopped": logging.INFO,
    "WorkerFailed": logging.CRITICAL,
}


def tell(
    logger: logging.Logger,
    happening: Happening,
    message: str,
    /,
    *arguments: object,
    traceback: str = "",
    **fields: object,
) -> None:
    """Log a line of what has happened, at its level."""
    say(logger, LEVELS[happening], happening, message, *arguments, traceback=traceback, **fields)
