"""What a person can do about an execution that failed, is parked or was cancelled: one clause, never in vain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stepwell.core.fullness import Memory
from stepwell.core.status import (
    CANCELLED,
    ERROR,
    PARK_CRASHED,
    PARK_DIVERGED,
    PARK_KILLS_SHARD,
    PARK_NOT_DEPLOYED,
    PARK_UNREADABLE,
    PARKED,
)

__all__ = ["NO_WORKER", "no_worker", "to_do"]

NO_WORKER: Final = "no worker is running: start one with `stepwell run FILE`"

_FITTING: Final = "start another execution with an input that fits"
_PARKED: Final = {
    PARK_DIVERGED: "run code that fits the record (mend it, or roll back), then: {retry}",
    PARK_UNREADABLE: "repair its row in Redis, then: {retry}",
    PARK_KILLS_SHARD: "mend the flow's code (move what takes long, or may crash, into a @step), then: {retry}",
    PARK_CRASHED: "mend what the traceback shows, then: {retry}",
}


def no_worker(memory: Memory | None) -> str:
    """What to do where no worker has shown a sign of life. `memory`: of the server, if it is known and limited."""
    if memory is None or not memory.full:
        return NO_WORKER
    return (
        f"no worker can be seen, as Redis is full ({memory.told}) and takes no signs of life of those that run:"
        " raise its maxmemory, or free memory"
    )


def to_do(execution_id: str, status: str, error: Mapping[str, object] | None, flow: str = "") -> str:
    """The advice; empty where there is nothing to do.

    Args:
        execution_id: which execution.
        status: its status.
        error: its terminal error, or why it is parked, as `show --json` has it.
        flow: its flow's name, if known.
    """
    retry = f"stepwell retry {execution_id}"
    if error is None or status not in (PARKED, ERROR, CANCELLED):
        return ""
    if status == CANCELLED:
        return "start another execution: what was cancelled does not go on"
    if status == PARKED:
        if error["type"] == PARK_NOT_DEPLOYED:
            its = f"the flow {flow}" if flow else "its flow"
            return f"run all workers with {its}: it goes on once the one in charge has it"
        return _PARKED.get(str(error["type"]), "mend the cause, then: {retry}").format(retry=retry)
    if error.get("compensated"):
        return "start another execution: the flow went on after that failure, so a retry of this one would be refused"
    if error["type"] == "InvalidInput" and error.get("failed_step") is None and not error.get("detail"):
        return f"{_FITTING} (or let the flow take this one, then: {retry})"
    return f"mend the cause, then: {retry} (the same keys, a fresh budget)"
