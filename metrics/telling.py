"""Each event in words: its level, its sentence, and its fields. Log lines and `stepwell tail` say the same.

Levels: DEBUG for what happens at every step while all is well, INFO for what people and deploys do, WARNING for what
costs an attempt, ERROR for what needs a person. Fields have the same names everywhere (docs/logs.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from stepwell.core import events
from stepwell.core.advice import to_do
from stepwell.core.eventlog import RawEvent, fields_of, kind_of
from stepwell.core.events import Event
from stepwell.core.status import COMPLETED, ERROR, PARKED
from stepwell.metrics.formatting import utc_ms

__all__ = ["FIELDS", "LEVELS", "Said", "group_of", "level_of", "said"]

Said: TypeAlias = tuple[str, dict[str, object]]
"""A sentence, and the fields that belong to it."""

FIELDS: Final = {
    "execution": "the execution",
    "flow": "its flow",
    "step": "the step's name",
    "path": "the operation's place in its execution",
    "attempt": "number of the attempt, from 1",
    "max_attempts": "number of the last one that the budget allows",
    "key": "the idempotency key: the same for all attempts",
    "due": "when the next attempt, or a wait, is due",
    "delay_s": "seconds until then, as decided",
    "late_s": "seconds that an attempt began after it was due",
    "duration_s": "seconds that it took, or lasted",
    "waited_s": "seconds that it waited",
    "retry_after": "the error asked for its own delay",
    "interruptions": "how often the attempt was cut short by now",
    "kind": "which of a few: what failed (error, timeout, crash), what is waited for (timer, signal), how Redis fails",
    "name": "the signal",
    "status": "the status after it, or before it where an execution goes on",
    "reason": "why: one of a few words",
    "error": "the error's type and message",
    "detail": "more of it",
    "where": "the line of the flow's code",
    "command": "the command",
    "event": "what is told, by its name",
    "trace": "the trace's id, where the execution is traced",
    "shard": "the shard, as `WORKER/INDEX`",
    "worker": "the worker, in lines of its parent process",
    "pid": "the shard's process",
    "part": "the part of a shard that tells it, or that failed",
    "cause": "what ended a shard, or why a partition may have been left unfinished: words as in the metrics",
    "partition": "one partition",
    "partitions": "how many partitions",
    "which": "which partitions, as ranges",
    "holder": "the shard that has them now",
    "entry": "the inbox entry",
    "entries": "how many inbox entries",
    "executions": "how many executions",
    "strikes": "how many shards died on it",
    "steps": "how many steps run, or were cut short",
    "timeout_s": "the step's timeout",
    "server": "the server's kind and version",
    "topology": "how Redis is set up",
    "durability": "when a write counts as acknowledged",
    "aof": "how the server keeps its writes on disk",
    "eviction": "what the server does when its memory is full",
    "replicas": "how many replicas it has",
    "kept": "whether every promise can be kept (yes, no)",
    "port": "the port that is taken instead",
    "spans": "how many spans are lost so far",
    "left_out": "how many lines were left out",
    "like": "one of these lines",
}
"""The names of the fields of lines, and what they mean."""

LEVELS: Final[dict[type, int]] = {
    events.ExecutionBegan: logging.DEBUG,
    events.ExecutionParked: logging.ERROR,
    events.ExecutionResumed: logging.INFO,
    events.ExecutionEnded: logging.ERROR,  # the highest that it can have: see `level_of`
    events.StepCompleted: logging.DEBUG,
    events.AttemptFailed: logging.WARNING,
    events.StepGaveUp: logging.ERROR,
    events.StepCancelled: logging.DEBUG,  # who cancelled is told once, by the command
    events.BackoffLeft: logging.DEBUG,
    events.BackoffResumed: logging.DEBUG,
    events.RetryStarted: logging.DEBUG,
    events.StepInterrupted: logging.WARNING,
    events.ResultDropped: logging.WARNING,
    events.WaitBegan: logging.DEBUG,
    events.WaitEnded: logging.DEBUG,
    events.CommandDone: logging.INFO,
}
# What went well is the bulk, and a line costs as much as half a step.
_ENDS: Final = {COMPLETED: logging.DEBUG, ERROR: logging.ERROR}
# By the name in a line: what of an event says why.
_REASON: Final = {"reason": "reason"}
_WHY: Final[dict[type, dict[str, str]]] = {
    events.AttemptFailed: {"kind": "kind"},
    events.CommandDone: {"command": "command"},
    events.ExecutionEnded: {"status": "status", "reason": "reason"},
    events.ExecutionResumed: {"reason": "why"},
    events.StepInterrupted: {"reason": "cause"},
}
# Signals are what flows live on; the other commands are people's.
_ROUTINE: Final = frozenset({"signal"})


def level_of(event: Event) -> int:
    """The level of its line."""
    if isinstance(event, events.ExecutionEnded):
        return _ENDS.get(event.status, logging.INFO)
    if isinstance(event, events.CommandDone) and event.applied and event.command in _ROUTINE:
        return logging.DEBUG
    return LEVELS[type(event)]


def group_of(event: Event) -> tuple[tuple[str, str], ...]:
    """What lines that are left out are counted by, named as in those lines: event, flow, step and why, all from closed
    sets."""
    found = {"event": type(event).__name__, "flow": event.flow, "step": getattr(event, "step", "")}
    why = _WHY.get(type(event), _REASON)
    found |= {name: getattr(event, attribute, "") for name, attribute in why.items()}
    return tuple((name, value) for name, value in found.items() if value)


def said(event: Event | RawEvent) -> Said:
    """The sentence and the fields. An event of a kind that this version does not know is told as it stands."""
    words = None if isinstance(event, RawEvent) else _WORDS.get(type(event))
    if words is None:
        return kind_of(event), _plain(fields_of(event))
    return words(event)


def _plain(fields: dict[str, object]) -> dict[str, object]:
    """The fields under their usual names."""
    execution = fields.pop("execution_id", None)
    return {**({} if execution is None else {"execution": execution}), **fields}


def _place(event: Event) -> dict[str, object]:
    """The fields that say which execution, and which attempt of what."""
    place: dict[str, object] = {"execution": event.execution_id, "flow": event.flow}
    for name in ("step", "path", "attempt"):
        value = getattr(event, name, None)
        if value not in (None, ""):  # an execution can be parked at no place in its code
            place[name] = value
    return place


def _error(event: events.AttemptFailed | events.StepGaveUp | events.ExecutionEnded) -> dict[str, object]:
    return {"error": f"{event.error_type}: {event.message}"} if event.error_type else {}


def _began(event: events.ExecutionBegan) -> Said:
    return "execution began", {**_place(event), "waited_s": event.waited_ms / 1000}


def _completed(event: events.StepCompleted) -> Said:
    return f"step completed at attempt {event.attempt}", {**_place(event), "duration_s": event.duration_ms / 1000}


def _failed(event: events.AttemptFailed) -> Said:
    delay = event.delay_ms / 1000
    return f"attempt {event.attempt} of {event.max_attempts} failed, next in {delay:.3f} s", {
        **_place(event),
        "max_attempts": event.max_attempts,
        "kind": event.kind,
        **_error(event),
        "delay_s": delay,
        "due": utc_ms(event.due_at),
        **({"retry_after": True} if event.asked else {}),
        "key": event.key,
    }


def _gave_up(event: events.StepGaveUp) -> Said:
    fields = {**_place(event), "reason": event.reason, **_error(event), "key": event.key}
    return f"step failed for good at attempt {event.attempt}: {event.reason}", fields


def _cancelled(event: events.StepCancelled) -> Said:
    why = {"cancel": "its execution is cancelled", "gather": "another branch failed"}.get(event.why, event.why)
    return f"attempt {event.attempt} never begins: {why}", {**_place(event), "reason": event.why}


def _wait_began(event: events.WaitBegan) -> Said:
    what = f"signal {event.name}" if event.name else event.kind
    due = {} if event.due_at is None else {"due": utc_ms(event.due_at)}
    until = f", until {due['due']}" if due else ""
    return f"waits for {what}{until}", {**_place(event), "kind": event.kind, **_named(event), **due}


def _wait_ended(event: events.WaitEnded) -> Said:
    what = f"signal {event.name}" if event.name else event.kind
    fields = {**_place(event), "kind": event.kind, **_named(event), "status": event.outcome}
    return f"wait for {what} ended: {event.outcome}", {**fields, "waited_s": event.waited_ms / 1000}


def _named(event: events.WaitBegan | events.WaitEnded) -> dict[str, object]:
    return {"name": event.name} if event.name else {}


def _went_on(event: events.ExecutionResumed) -> Said:
    return f"execution goes on ({event.why}); it was {event.was}", {
        **_place(event),
        "status": event.was,
        "reason": event.why,
    }


def _left(event: events.BackoffLeft) -> Said:
    return f"backoff ended: {event.why}", {**_place(event), "reason": event.why}


def _resumed(event: events.BackoffResumed) -> Said:
    return "backoff goes on in memory", {**_place(event), "delay_s": event.remaining_ms / 1000}


def _retried(event: events.RetryStarted) -> Said:
    return f"attempt {event.attempt} begins", {**_place(event), "late_s": event.lateness_ms / 1000}


def _interrupted(event: events.StepInterrupted) -> Said:
    if event.cause == "drain":
        text = f"attempt {event.attempt} was cut short, as its worker left; it runs again, with the same key"
        return text, {**_place(event), "interruptions": event.interruptions, "reason": event.cause}
    apart = " in a process of its own, for it may have been the cause" if event.set_apart else ""
    return f"attempt {event.attempt} may have been cut short by a crash, it runs again{apart}", {
        **_place(event),
        "interruptions": event.interruptions,
        "reason": event.cause,
    }


def _dropped(event: events.ResultDropped) -> Said:
    return f"the outcome of attempt {event.attempt} was dropped: that attempt is not running any more", _place(event)


def _parked(event: events.ExecutionParked) -> Said:
    advice = to_do(event.execution_id, PARKED, {"type": event.reason}, event.flow)
    fields = {**_place(event), "reason": event.reason, "detail": event.detail}
    return f"execution parked: {event.reason}; to do: {advice}", fields


def _ended(event: events.ExecutionEnded) -> Said:
    return f"execution ended: {event.status}", {
        **_place(event),
        "status": event.status,
        **({"reason": event.reason} if event.reason else {}),
        **_error(event),
        **({"where": event.detail} if event.detail else {}),
        "duration_s": event.duration_ms / 1000,
    }


def _command(event: events.CommandDone) -> Said:
    fields = {**_place(event), "command": event.command}
    if event.applied:
        return f"command applied: {event.command}", fields
    return f"command refused: {event.command}", {**fields, "reason": event.reason}


_WORDS: Final[dict[type, Callable[..., Said]]] = {
    events.ExecutionBegan: _began,
    events.StepCompleted: _completed,
    events.AttemptFailed: _failed,
    events.StepGaveUp: _gave_up,
    events.BackoffLeft: _left,
    events.BackoffResumed: _resumed,
    events.RetryStarted: _retried,
    events.StepInterrupted: _interrupted,
    events.ResultDropped: _dropped,
    events.ExecutionParked: _parked,
    events.ExecutionResumed: _went_on,
    events.StepCancelled: _cancelled,
    events.WaitBegan: _wait_began,
    events.WaitEnded: _wait_ended,
    events.ExecutionEnded: _ended,
    events.CommandDone: _command,
}
