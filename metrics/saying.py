"""Lines of the log that tell of no execution's event: what shards notice, what becomes of processes, what Stepwell's
own parts meet. Each kind has a name and a level (docs/logs.md); events of executions are told by `telling.py`.
"""

from __future__ import annotations

import logging
import traceback as tracebacks
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from stepwell.core.redact import redact

__all__ = ["LEVELS", "Kind", "say", "traceback_of"]

Debugs: TypeAlias = Literal["DuplicateSuppressed"]
Infos: TypeAlias = Literal[
    "ConsumerForgotten",
    "GuaranteeSeen",
    "PartitionGained",
    "PartitionRecovered",
    "ShardDraining",
    "ShardRestarting",
    "ShardStarted",
    "TracingSeen",
    "WorkerDraining",
    "WorkerStarted",
    "WorkerStopped",
]
Warnings: TypeAlias = Literal[
    "CleanupRaised",
    "ClockSetBack",
    "DeadLettered",
    "Fenced",
    "FileUnusable",
    "FlowFinding",
    "Healed",
    "KeyUnreadable",
    "LeftAlone",
    "LinesLeftOut",
    "NameTaken",
    "NotSafeYet",
    "PartSlow",
    "PartitionGone",
    "PortTaken",
    "RowMissing",
    "SchedulerHeld",
    "SeriesFolded",
    "ShardExamined",
    "ShardSlow",
    "SpansLost",
    "StandingBy",
    "StepLoopHeld",
    "StepOverran",
    "StepsCutShort",
    "StepsHeldBack",
    "StoreTrouble",
    "SuspectOpened",
    "SweepFound",
    "TailLost",
    "ThreadGivenUp",
]
Errors: TypeAlias = Literal["ActorFailed", "PartErred", "RowDiverged", "ShardDied"]
Criticals: TypeAlias = Literal["PartFailed", "ShardKilled", "WorkerFailed"]
Kind: TypeAlias = Debugs | Infos | Warnings | Errors | Criticals

LEVELS: Final[dict[str, int]] = {
    **dict.fromkeys(get_args(Debugs), logging.DEBUG),
    **dict.fromkeys(get_args(Infos), logging.INFO),
    **dict.fromkeys(get_args(Warnings), logging.WARNING),
    **dict.fromkeys(get_args(Errors), logging.ERROR),
    **dict.fromkeys(get_args(Criticals), logging.CRITICAL),
}
"""Of each kind, its usual one. What a shard observes and is not here is only counted."""

NOTHING: Final[Mapping[str, object]] = {}
CALLERS: Final = 2
"""Frames up from here: this one, and the one that has something to say."""


def say(
    logger: logging.Logger,
    kind: Kind,
    message: str,
    /,
    *arguments: object,
    level: int | None = None,
    traceback: str | BaseException = "",
    of: Mapping[str, object] = NOTHING,
    **fields: object,
) -> None:
    """Log a line of that kind, at its usual level unless another one is given, with a traceback below if there is one.

    `fields`, and those `of` what it is about, have the names of docs/logs.md; one that is None is left out. Whoever
    notices it says it, where the whole sentence is known: a trouble when it begins, many partitions in one line.
    """
    level = LEVELS[kind] if level is None else level
    if not logger.isEnabledFor(level):
        return
    known = {name: value for name, value in {**of, **fields}.items() if value is not None}
    file, number, function, _ = logger.findCaller(stacklevel=CALLERS)
    extra = {"fields": {**known, "event": kind}}
    record = logger.makeRecord(logger.name, level, file, number, message, arguments, None, function, extra)
    # As text and without credentials: who runs a worker in a program of their own may have another formatter.
    record.exc_text = redact(traceback if isinstance(traceback, str) else traceback_of(traceback)) or None
    logger.handle(record)


def traceback_of(error: BaseException) -> str:
    """Its traceback as text, also where the error can't be shown; as it stands, with whatever its messages hold."""
    try:
        lines = tracebacks.format_exception(error)
    except Exception as broken:
        lines = [f"{type(error).__name__} (its traceback can't be shown: {type(broken).__name__})"]
    return "".join(lines).rstrip("\n")
