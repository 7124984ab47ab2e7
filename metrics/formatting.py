"""Log lines: one a record, `key=value` for people or JSON for machines, without credentials.

    2026-01-05T09:30:00.125Z WARNING attempt 2 of 5 failed, next in 0.812 s execution=order-7 path=charge ...

URL credentials and declared secrets are hidden in messages, fields and tracebacks alike. A record brings its
fields in `record.fields` (a dict), as `current_step().logger` does; a record of any other logger has those of the step
in whose body it was made.
"""

from __future__ import annotations

import json as json_format
import logging
import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from stepwell.core.escapes import escaped, escaped_json
from stepwell.core.messages import message_of
from stepwell.core.redact import Secrets, redact
from stepwell.flow.context import running_step
from stepwell.metrics.saying import traceback_of

__all__ = ["JsonFormatter", "KeyValueFormatter", "utc_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BARE = re.compile(r"[^\s\"'=\\]+")
_OFTEN_SAID = ("detail", "error")
"""Fields whose text the sentence often has."""
_MARGIN = "  "
"""Before each line of a traceback: what it shows can't be taken for a line of the log."""


def utc_ms(milliseconds: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC, to the millisecond: `2026-01-05T09:30:00.125Z`; a time that no
    calendar has, as a damaged row may, as the number that it is."""
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Redacting(logging.Formatter):
    """Gathers a record's parts; each string is redacted before anything quotes or escapes it.

    `fields` stand in each line, after those of the record.
    """

    def __init__(self, secrets: Collection[str] = (), fields: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.always = dict(fields or {})
        self._secrets = Secrets(secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is never shown."""
        return self._secrets.values

    def formatException(self, ei: object) -> str:
        """The traceback of `record.exc_info`, redacted; as it stands, with whatever its messages hold."""
        if not isinstance(ei, tuple) or ei[1] is None:
            return ""
        return self.clean(traceback_of(ei[1]))

    def clean(self, text: str) -> str:
        """The text without credentials; lone surrogates, which no stream could write, are replaced."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self._secrets.hide(redact(text))

    def message(self, record: logging.LogRecord) -> str:
        """The record's message, also if its arguments don't fit it."""
        try:
            return self.clean(record.getMessage())
        except Exception as error:
            return self.clean(f"{record.msg!r} (its arguments do not fit: {type(error).__name__})")

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """The record's fields; what is no plain value is shown as text."""
        fields = getattr(record, "fields", None)
        if not isinstance(fields, Mapping):
            # Of anybody's logger: within a step's body its place is known all the same.
            step = running_step.get(None)
            if step is None:
                return dict(self.always)
            fields = step.log_fields
        return {self.clean(str(name)): self._value(value) for name, value in fields.items()} | self.always

    def trace(self, record: logging.LogRecord) -> str:
        """Traceback and stack of the record; "" where there are none."""
        stack = self.clean(record.stack_info) if record.stack_info else ""
        raised = self.formatException(record.exc_info) or self.clean(record.exc_text or "")
        return "\n".join(part for part in (raised, stack) if part)

    def _value(self, value: object) -> object:
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return self.clean(value if isinstance(value, str) else _text(value))


class KeyValueFormatter(_Redacting):
    """For people: `time LEVEL message key=value ...`, the traceback on the lines below, which begin with a margin. What
    the message has word for word no field says again."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; what steers or is not seen is escaped, so that no text can forge a second one, in a traceback
        neither."""
        message = self.message(record)
        parts = [_time(record), escaped(f"{record.levelname:<7}"), escaped(message)]
        for name, value in self.fields(record).items():
            if name not in _OFTEN_SAID or not isinstance(value, str) or value not in message:
                parts.append(f"{_quoted(name)}={_quoted(value)}")
        below = self.trace(record)
        lines = [_MARGIN + escaped(line) for line in below.split("\n")] if below else []
        return "\n".join([" ".join(parts), *lines])


class JsonFormatter(_Redacting):
    """For machines: one object a line with `time level logger message`, the fields, and `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a field that has the name of a standard member is kept as `field.<name>`."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": self.clean(record.levelname),
            "logger": self.clean(record.name),
            "message": self.message(record),
        }
        trace = self.trace(record)
        if trace:
            line["traceback"] = trace
        for name, value in self.fields(record).items():
            line[f"field.{name}" if name in line else name] = value
        return escaped_json(json_format.dumps(line, ensure_ascii=False, allow_nan=False))


def _time(record: logging.LogRecord) -> str:
    return utc_ms(int(record.created * 1000))


def _text(value: object) -> str:
    if isinstance(value, BaseException):
        return message_of(value)
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} in its repr>"


def _quoted(value: object) -> str:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if text.isprintable() and _BARE.fullmatch(text):
        return text
    doubled = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(doubled)}"'
