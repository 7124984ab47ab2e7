"""How a shard's own parts tell what they observe: each kind of observation has its level, and its name in the line."""

from __future__ import annotations

import logging
from typing import Final

from stepwell.actors import store_events as e
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.saying import say

__all__ = ["COUNTED", "LEVELS", "note"]

LEVELS: Final[dict[type[StoreEvent], int]] = {
    e.PartitionGained: logging.INFO,
    e.PartitionRecovered: logging.INFO,
    e.PartitionGone: logging.WARNING,
    e.StoreTrouble: logging.WARNING,
    e.NotSafeYet: logging.WARNING,
    e.TailLost: logging.WARNING,
    e.Healed: logging.WARNING,
    e.Fenced: logging.WARNING,
    e.RowDiverged: logging.ERROR,
    e.RowMissing: logging.WARNING,
    e.SweepFound: logging.WARNING,
    e.DeadLettered: logging.WARNING,
    e.LeftAlone: logging.WARNING,
    e.SuspectOpened: logging.WARNING,
    e.ActorFailed: logging.ERROR,
    e.StepOverran: logging.WARNING,
    e.GuaranteeSeen: logging.INFO,
    e.DuplicateSuppressed: logging.DEBUG,
}
"""Of each kind that is logged."""

COUNTED: Final[frozenset[type[StoreEvent]]] = frozenset(
    {e.BatchWritten, e.ExecutionsCounted, e.BackoffsCounted, e.LyingCounted, e.StartsWait, e.IngressTaken}
)
"""Only counted: it happens all the time."""


def note(
    logger: logging.Logger,
    kind: type[StoreEvent],
    message: str,
    /,
    *arguments: object,
    level: int | None = None,
    traceback: str = "",
    **fields: object,
) -> None:
    """Log a line of an observation, at its usual level unless another one is given. Whoever notices it says it, where
    the whole sentence is known: a trouble when it begins, many partitions in one line."""
    say(
        logger,
        LEVELS[kind] if level is None else level,
        kind.__name__,
        message,
        *arguments,
        traceback=traceback,
        **fields,
    )
