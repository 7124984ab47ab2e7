"""Logging of a process: its set-up, and what events become log lines.

Every retry is logged with its real delay and due time, and whatever a person may have to look at.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TextIO

import msgspec

from stepwell.core.events import Event
from stepwell.core.throttle import LeftOut, Throttle
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter
from stepwell.metrics.telling import LEVELS, group_of, level_of, said

__all__ = ["LogSetup", "LogSubscriber", "current_setup", "setup_logging"]

# They log each request with its whole URL, or each turn of the loop.
CHATTY = ("httpx", "httpcore", "asyncio")
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


Group = tuple[str, str, str, str]


class LogSubscriber:
    """Logs events, each at its level. What goes well is logged at DEBUG only, and is not even looked at otherwise: that
    is decided when this is made.

    Of lines of one kind, flow, step and reason the first few in some seconds are written; then one tells how many more
    there were. `tick` writes those, every now and then; `flush` at the end. Threads may share it.
    """

    def __init__(self, logger: logging.Logger = _logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._wanted = frozenset(kind for kind, level in LEVELS.items() if logger.isEnabledFor(level))
        self._throttle: Throttle[Group] = Throttle()
        self._levels: dict[Group, int] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Log one event, if it is of a kind that is logged."""
        if type(event) in self._wanted:
            self._log(event, level_of(event))

    def tick(self) -> None:
        """Tell of what was left out in windows that are over."""
        self._tell(self._throttle.over)

    def flush(self) -> None:
        """Tell of all that was left out."""
        self._tell(self._throttle.flush)

    def _log(self, event: Event, level: int) -> None:
        if not self._logger.isEnabledFor(level):
            return
        if level > logging.DEBUG and not self._admits(event, level):
            return
        message, fields = said(event)
        self._logger.log(level, "%s", message, extra={"fields": fields | {"event": type(event).__name__}})

    def _admits(self, event: Event, level: int) -> bool:
        group = group_of(event)
        self.tick()
        with self._lock:
            self._levels[group] = level
            return self._throttle.admits(group, self._monotonic())

    def _tell(self, asked: Callable[[float], list[LeftOut[Group]]]) -> None:
        with self._lock:
            found = [(each, self._levels[each.key]) for each in asked(self._monotonic())]
        for each, level in found:
            kind, flow, step, reason = each.key
            fields: dict[str, object] = {"flow": flow, **({"step": step} if step else {})}
            fields |= {**({"reason": reason} if reason else {}), "event": kind, "left_out": each.count}
            message = f"and {each.count:,} more like this in the last {each.seconds:.1f} s"
            self._logger.log(level, "%s", message, extra={"fields": fields})
