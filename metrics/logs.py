"""Logging of a process: its set-up, and what events become log lines.

Every retry is logged with its real delay and due time, and whatever a person may have to look at.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TextIO

import msgspec

from stepwell.core import events
from stepwell.core.advice import to_do
from stepwell.core.events import Event
from stepwell.core.status import COMPLETED, ERROR, PARKED
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter, utc_ms

__all__ = ["LogSetup", "LogSubscriber", "current_setup", "setup_logging"]

# They log each request with its whole URL, or each turn of the loop.
CHATTY = ("httpx", "httpcore", "asyncio")
# What went well is the bulk, and a line costs as much as half a step.
_END_LEVELS = {COMPLETED: logging.DEBUG, ERROR: logging.ERROR}
_logger = logging.getLogger("stepwell.events")


class LogSetup(msgspec.Struct, frozen=True):
    """Arguments of `setup_logging`."""

    json: bool
    level: int
    secrets: list[str]
    fields: dict[str, str]


def setup_logging(
    json: bool = False,
    level: int | str = logging.INFO,
    secrets: Collection[str] = (),
    stream: TextIO | None = None,
    fields: Mapping[str, str] | None = None,
) -> logging.Handler:
    """Make the process log to `stream` (stderr) in one format; calling it again replaces the earlier set-up.

    Args:
        json: one JSON object a line instead of `key=value`.
        level: least level that is shown, of Stepwell and of everybody else in the process.
        secrets: values that are never shown, wherever they turn up.
        stream: where to write.
        fields: what each line has beside its own fields: which process it is from, say.

    Returns:
        The installed handler.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _OurHandler)]:
        root.removeHandler(old)
    handler = _OurHandler(sys.stderr if stream is None else stream)
    handler.setFormatter((JsonFormatter if json else KeyValueFormatter)(secrets, fields))
    root.addHandler(handler)
    root.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    return handler


def current_setup() -> LogSetup | None:
    """What `setup_logging` was told last, for a process that is to log as this one does."""
    root = logging.getLogger()
    for handler in root.handlers:
        formatter = handler.formatter
        if isinstance(handler, _OurHandler) and isinstance(formatter, JsonFormatter | KeyValueFormatter):
            is_json = isinstance(formatter, JsonFormatter)
            return LogSetup(is_json, root.level, list(formatter.secrets), dict(formatter.always))
    return None


class _OurHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `setup_logging` installed."""


def _attempt_of(
    event: events.AttemptFailed | events.StepGaveUp | events.StepInterrupted | events.ResultDropped,
) -> dict[str, object]:
    """The fields that name an attempt."""
    return {
        "execution": event.execution_id,
        "flow": event.flow,
        "path": event.path,
        "attempt": event.attempt,
    }


class LogSubscriber:
    """Logs what went wrong and what ended; completed steps and applied commands are not logged."""

    def __init__(self, logger: logging.Logger = _logger) -> None:
        self._logger = logger
        self._handlers: dict[type, Callable[..., None]] = {
            events.AttemptFailed: self._failed,
            events.StepGaveUp: self._gave_up,
            events.StepInterrupted: self._interrupted,
            events.ResultDropped: self._dropped,
            events.ExecutionParked: self._parked,
            events.ExecutionEnded: self._ended,
            events.CommandDone: self._command_done,
        }

    def __call__(self, event: Event) -> None:
        """Log one event, if it is of a kind that is logged."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _failed(self, event: events.AttemptFailed) -> None:
        delay = event.delay_ms / 1000
        self._log(
            logging.WARNING,
            f"attempt {event.attempt} of {event.max_attempts} failed, next in {delay:.3f} s",
            **_attempt_of(event),
            max_attempts=event.max_attempts,
            error=f"{event.error_type}: {event.message}",
            delay_s=delay,
            due=utc_ms(event.due_at),
            **({"retry_after": True} if event.asked else {}),
            key=event.key,
        )

    def _gave_up(self, event: events.StepGaveUp) -> None:
        self._log(
            logging.ERROR,
            f"step failed for good at attempt {event.attempt}: {event.reason}",
            **_attempt_of(event),
            reason=event.reason,
            error=f"{event.error_type}: {event.message}",
            key=event.key,
        )

    def _interrupted(self, event: events.StepInterrupted) -> None:
        self._log(
            logging.WARNING,
            f"attempt {event.attempt} may have been cut short by a crash, it runs again"
            + (" in a process of its own, for it may have been the cause" if event.set_apart else ""),
            **_attempt_of(event),
            interruptions=event.interruptions,
        )

    def _dropped(self, event: events.ResultDropped) -> None:
        self._log(
            logging.WARNING,
            f"the outcome of attempt {event.attempt} was dropped: that attempt is not running any more",
            **_attempt_of(event),
        )

    def _parked(self, event: events.ExecutionParked) -> None:
        advice = to_do(event.execution_id, PARKED, {"type": event.reason}, event.flow)
        self._log(
            logging.ERROR,
            f"execution parked: {event.reason}; to do: {advice}",
            execution=event.execution_id,
            flow=event.flow,
            reason=event.reason,
            detail=event.detail,
        )

    def _ended(self, event: events.ExecutionEnded) -> None:
        level = _END_LEVELS.get(event.status, logging.INFO)
        if not self._logger.isEnabledFor(level):
            return  # nearly always: not even its words need be put together
        self._log(
            level,
            f"execution ended: {event.status}",
            execution=event.execution_id,
            flow=event.flow,
            status=event.status,
            **({"reason": event.reason} if event.reason else {}),
            **({"error": f"{event.error_type}: {event.message}"} if event.error_type else {}),
            **({"where": event.detail} if event.detail else {}),
            duration_s=event.duration_ms / 1000,
        )

    def _command_done(self, event: events.CommandDone) -> None:
        if not event.applied:
            self._log(
                logging.INFO,
                f"command refused: {event.command}",
                execution=event.execution_id,
                flow=event.flow,
                command=event.command,
                reason=event.reason,
            )

    def _log(self, level: int, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, extra={"fields": fields})
