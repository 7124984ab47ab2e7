"""Logging of a process: its set-up, and what events become log lines.

Every retry is logged with its real delay and due time, and whatever a person may have to look at.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from typing import Final, TextIO, TypeAlias, TypeVar

import msgspec

from stepwell.core.events import Event
from stepwell.core.redact import declared_secrets
from stepwell.core.throttle import FIRST_OF_ENDS, LeftOut, Throttle
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter
from stepwell.metrics.logwriter import PatientHandler
from stepwell.metrics.telling import LEVELS, group_of, level_of, said

__all__ = ["LimitedLog", "LogSetup", "LogSubscriber", "current_setup", "say_who", "setup_logging", "tick_logging"]

# They log each request with its whole URL, or each turn of the loop.
CHATTY = ("httpx", "httpcore", "asyncio")
_logger = logging.getLogger("stepwell.events")
_OURS: Final = "stepwell."
UNLIMITED: Final = frozenset({"stepwell.step", "stepwell.worker", "stepwell.cli"})
"""Loggers of step bodies, and of the parent, which tells of each of its shards."""
LIMITED: Final = "stepwell_limited"
"""A record with this attribute was counted already."""

_LIKE_MAX: Final = 200
K = TypeVar("K", bound=Hashable)


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
        old.close()
    formatter = (JsonFormatter if json else KeyValueFormatter)(secrets, fields)
    handler = _OurHandler(sys.stderr if stream is None else stream, formatter)
    root.addHandler(handler)
    root.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    return handler


def say_who(**fields: str) -> None:
    """From now on each line of this process has these fields, too; where `setup_logging` was not called, nothing is
    done."""
    for handler in logging.getLogger().handlers:
        formatter = handler.formatter
        if isinstance(handler, _OurHandler) and isinstance(formatter, JsonFormatter | KeyValueFormatter):
            formatter.always |= fields


def current_setup() -> LogSetup | None:
    """What `setup_logging` was told last, for a process that is to log as this one does."""
    root = logging.getLogger()
    for handler in root.handlers:
        formatter = handler.formatter
        if isinstance(handler, _OurHandler) and isinstance(formatter, JsonFormatter | KeyValueFormatter):
            is_json = isinstance(formatter, JsonFormatter)
            secrets = [*formatter.secrets, *declared_secrets()]
            return LogSetup(is_json, root.level, secrets, dict(formatter.always))
    return None


class _OurHandler(PatientHandler):
    """The handler that `setup_logging` installs. Of Stepwell's own lines it writes the first few of a kind in some
    seconds, and then how many more there were; those of step bodies, of the parent and of anybody else are never left
    out."""

    def __init__(self, stream: TextIO, formatter: JsonFormatter | KeyValueFormatter) -> None:
        super().__init__(stream, partial(_left_out, formatter))
        self._message = formatter.message
        self._monotonic = time.monotonic
        self._counting = threading.Lock()
        self.setFormatter(formatter)
        self.addFilter(self._admits)
        self._throttle: Throttle[tuple[str, int, str, str]] = Throttle()

    def _admits(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if not record.name.startswith(_OURS) or record.name in UNLIMITED or hasattr(record, LIMITED):
            return True
        self.tick()  # a window that is over must not swallow what comes after it
        said = self._message(record)[:_LIKE_MAX]  # cut last: what is cut within a password is not known for one
        like = said if record.msg == "%s" else str(record.msg)
        with self._counting:
            return self._throttle.admits((record.name, record.levelno, _event(record), like), self._monotonic(), said)

    def tick(self, all_of_it: bool = False) -> None:
        """Tell of what was left out in windows that are over, or in all."""
        now = self._monotonic()
        with self._counting:
            found = self._throttle.flush(now) if all_of_it else self._throttle.over(now)
        for each in found:
            name, level, event, _ = each.key
            fields = {"event": event, "like": each.example, "left_out": each.count}
            extra = {"fields": fields, LIMITED: True}
            logging.getLogger(name).log(level, "%s", _more_told(each), extra=extra)

    def close(self) -> None:
        """Tell what was left out, and wait a little until all is written."""
        self.tick(all_of_it=True)
        self.flush()
        super().close()


def tick_logging(all_of_it: bool = False) -> None:
    """Let the handler that `setup_logging` installed tell what it has left out."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _OurHandler):
            handler.tick(all_of_it)


def _event(record: logging.LogRecord) -> str:
    """Of what kind the line is; one that has none is of any logger."""
    fields = getattr(record, "fields", None)
    return str(fields.get("event", "LinesLeftOut")) if isinstance(fields, Mapping) else "LinesLeftOut"


def _left_out(formatter: logging.Formatter, count: int) -> str:
    """The line that stands for those which nobody read in time."""
    message = f"{count:,} log lines were left out: whoever reads the log did not keep up"
    record = logging.LogRecord("stepwell.logs", logging.WARNING, __file__, 0, message, None, None)
    record.fields = {"event": "LinesLeftOut", "left_out": count}
    return formatter.format(record)


Group: TypeAlias = tuple[tuple[str, str], ...]
"""What lines have in common that are counted together: names and values of fields, all from closed sets."""


class LimitedLog:
    """A logger that writes the first few lines of a group in some seconds, and then how many more there were.

    `tick` writes those, every now and then; `flush` at the end. Threads may share it.
    """

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.logger = logger
        self._monotonic = monotonic
        self._throttle: Throttle[tuple[int, Group]] = Throttle()
        self._lock = threading.Lock()

    def admits(self, level: int, group: Group, execution: str = "", first: int | None = None) -> bool:
        """Whether a line of the group, which tells of that execution, is to be written now; one that is not counts as
        left out. `first`: so many of them are written."""
        if not self.logger.isEnabledFor(level):
            return False
        self.tick()
        with self._lock:
            return self._throttle.admits((level, group), self._monotonic(), execution, first)

    def write(self, level: int, message: str, fields: dict[str, object]) -> None:
        """Write a line."""
        self.logger.log(level, "%s", message, extra={"fields": fields, LIMITED: True})

    def tick(self) -> None:
        """Tell of what was left out in windows that are over."""
        with self._lock:
            found = self._throttle.over(self._monotonic())
        self._tell(found)

    def flush(self) -> None:
        """Tell of all that was left out."""
        with self._lock:
            found = self._throttle.flush(self._monotonic())
        self._tell(found)

    def _tell(self, found: list[LeftOut[tuple[int, Group]]]) -> None:
        for each in found:
            level, group = each.key
            example = {"execution": each.example} if each.example else {}
            self.write(level, _more_told(each), {**example, **dict(group), "left_out": each.count})


def _more_told(left_out: LeftOut[K]) -> str:
    """How many lines of a kind were left out."""
    return f"and {left_out.count:,} more like this in the last {left_out.seconds:.1f} s"


class LogSubscriber:
    """Logs events, each at its level. What goes well is logged at DEBUG only, and is not even looked at otherwise: that
    is decided when this is made. Lines of one kind, flow, step and reason are limited, those at DEBUG are not; what has
    ended badly, at ERROR, has far more room than what repeats itself.
    """

    def __init__(self, logger: logging.Logger = _logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = LimitedLog(logger, monotonic)
        self._wanted = frozenset(kind for kind, level in LEVELS.items() if logger.isEnabledFor(level))
        self.tick, self.flush = self._log.tick, self._log.flush
        self.trace: Callable[[str], str] | None = None
        """Asked for the id of an execution's trace, in hex; empty: none."""

    def handler(self, kind: type[Event]) -> Callable[[Event], None] | None:
        """What logs events of that kind; None where none is logged."""
        return self if kind in self._wanted else None

    def __call__(self, event: Event) -> None:
        """Log one event, if it is of a kind that is logged."""
        if type(event) in self._wanted:
            level = level_of(event)
            if self._log.logger.isEnabledFor(level) and (level <= logging.DEBUG or self._admits(event, level)):
                message, fields = said(event)
                trace = "" if self.trace is None else self.trace(event.execution_id)
                traced = {"trace": trace} if trace else {}
                self._log.write(level, message, {**fields, **traced, "event": type(event).__name__})

    def _admits(self, event: Event, level: int) -> bool:
        first = FIRST_OF_ENDS if level >= logging.ERROR else None
        return self._log.admits(level, group_of(event), event.execution_id, first)
