"""Waiting for an execution's end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.client.facts import NamespaceView
from stepwell.client.idle import why_idle
from stepwell.client.moves import Conversation, ask, watch
from stepwell.core import codec
from stepwell.core.advice import to_do
from stepwell.core.clock import Clock
from stepwell.core.durations import seconds
from stepwell.core.errors import (
    ExecutionCancelled,
    ExecutionFailed,
    PayloadError,
    StoreError,
    UnknownExecution,
)
from stepwell.core.names import check_execution_id
from stepwell.core.records import TerminalError, decode_error
from stepwell.core.status import CANCELLED, ERROR, PARKED, TERMINAL
from stepwell.core.view import error_shown
from stepwell.store import queries
from stepwell.store.queries import Query

__all__ = ["Ending", "Json", "deadline_of", "no_such", "result"]

Json: TypeAlias = Any
"""Decoded JSON: dict, list, str, int, float, bool or None."""

FIELDS = ("status", "result", "error")


@dataclass(frozen=True, slots=True)
class Ending:
    """What a row says about its end."""

    execution_id: str
    head: Mapping[str, bytes]

    @property
    def status(self) -> str:
        """The status; empty where there is no row."""
        return self.head.get("status", b"").decode("utf-8", "replace")

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.status in TERMINAL

    def value(self) -> Json:
        """The result. Raises what a caller gets instead of one."""
        if self.status == ERROR:
            raise ExecutionFailed(self.execution_id, self.error())
        if self.status == CANCELLED:
            raise ExecutionCancelled(self.execution_id)
        try:
            return codec.decode_foreign(self.head.get("result", b"null"))
        except codec.UNREADABLE as error:
            raise PayloadError(f"the result of execution {self.execution_id} can't be read: {error}") from error

    def error(self) -> dict[str, Json]:
        """The terminal error, or why the execution is parked."""
        try:
            return error_shown(decode_error(self.head.get("error", b"")))
        except codec.UNREADABLE:
            return error_shown(TerminalError("Unreadable", "the record of its error can't be read", 0))


def result(view: NamespaceView, clock: Clock, execution_id: str, timeout: float | None) -> Conversation[Json]:
    """The result, as soon as there is one.

    Raises ExecutionFailed, ExecutionCancelled, UnknownExecution, or TimeoutError after `timeout` seconds.
    """
    check_execution_id(execution_id)
    deadline = deadline_of(clock, timeout)
    keys = yield from view.keys()
    query = _ending(execution_id, queries.heads(keys, [execution_id], FIELDS))
    ending = yield from ask(query)
    if not ending.status:
        raise no_such(execution_id)
    if not ending.over and clock.monotonic() < deadline:
        last = yield from watch(keys.ended(execution_id), query, _Patient(), clock, deadline)
        ending = last or ending
    if not ending.status:
        raise UnknownExecution(f"execution {execution_id} has vanished from Redis while its result was waited for")
    if not ending.over:
        raise (yield from _late(view, ending, 0.0 if timeout is None else seconds(timeout, "the timeout")))
    return ending.value()


def deadline_of(clock: Clock, timeout: float | None) -> float:
    """The moment (monotonic seconds) at which a wait ends. Raises UsageError for what is no number of seconds."""
    if timeout is None:
        return math.inf
    return clock.monotonic() + seconds(timeout, "the timeout (None waits without limit)")


def no_such(execution_id: str) -> UnknownExecution:
    """The error for an id without a row."""
    return UnknownExecution(f"there is no execution {execution_id!r} in this namespace: check the id and the server")


def _ending(execution_id: str, heads: Query[list[dict[str, bytes]]]) -> Query[Ending]:
    return Query(heads.commands, lambda raws: Ending(execution_id, heads.parse(raws)[0]))


class _Patient:
    """Over at an end, or when the row was missing twice in a row: what Redis lost may be healed by its owner."""

    def __init__(self) -> None:
        self._missed = 0

    def __call__(self, ending: Ending) -> bool:
        self._missed = 0 if ending.status else self._missed + 1
        return ending.over or self._missed > 1


def _late(view: NamespaceView, ending: Ending, timeout: float) -> Conversation[TimeoutError]:
    said = f"execution {ending.execution_id} has not ended within {timeout:g} s: it is {ending.status}"
    if ending.status == PARKED:
        error = ending.error()
        why = f"{error['type']}: {error['message']}" if error["message"] else error["type"]
        said += f" ({why}); to do: {to_do(ending.execution_id, PARKED, error)}"
    try:
        idle = yield from why_idle(view)
    except StoreError:
        return TimeoutError(f"{said}, and Redis can't be reached now")
    return TimeoutError(f"{said}; {idle}" if idle else said)
