"""Why spans can't be exported: exporters of OpenTelemetry answer only that they could not, and tell their own loggers
why: a line for each try. Loaded only where spans are made.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias
from urllib.parse import unquote

from stepwell.core.messages import message_of
from stepwell.core.redact import SECRET_CHARS_MIN, Secrets, redact

__all__ = ["Hears", "cause_of", "hear_exporters", "hidden_headers", "listening"]

Hears: TypeAlias = Callable[[str, bool], None]
"""Is told what an exporter says, and whether that is its last word on the batch."""

LOGGER: Final = "opentelemetry.exporter"
HEADERS: Final = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_AGAIN: Final = re.compile(r"Transient error (.+?) encountered while exporting")
_thread = threading.local()


def hear_exporters() -> None:
    """From now on, what exporters say while somebody is `listening` on their thread goes there and not to the log; of
    what others let export, errors are logged as before, and each new try of a batch is not."""
    exporters = logging.getLogger(LOGGER)
    exporters.addHandler(_EAR)
    exporters.setLevel(logging.WARNING)
    exporters.propagate = False


@contextmanager
def listening(hears: Hears) -> Iterator[None]:
    """Let it hear what the exporter says that is called on this thread."""
    _thread.hears = hears
    try:
        yield
    finally:
        _thread.hears = None


def cause_of(error: BaseException) -> str:
    """The error that all began with, below those of libraries that wrap it: a refused connection, a name that nobody
    knows, a certificate."""
    seen = {id(error)}
    while (below := error.__cause__ or error.__context__) is not None and id(below) not in seen:
        seen.add(id(below))
        error = below
    return f"{type(error).__name__}: {message_of(error)}"


def hidden_headers(environment: Mapping[str, str]) -> Secrets:
    """What the variables have exporters send as headers: keys of collectors, most often."""
    found = Secrets()
    for header in ",".join(environment.get(name, "") for name in HEADERS).split(","):
        value = header.partition("=")[2].strip()
        for each in (value, unquote(value), *unquote(value).split()):
            if len(each) >= SECRET_CHARS_MIN:
                found.add(each)
    return found


class _Ear(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        """Without a lock: it keeps nothing, and whoever gets a record has one of their own."""
        hears: Hears | None = getattr(_thread, "hears", None)
        above = logging.getLogger(LOGGER).parent
        if hears is not None:
            hears(_said(record), record.levelno >= logging.ERROR)
        elif record.levelno >= logging.ERROR and above is not None:
            above.callHandlers(record)
        return True


_EAR: Final = _Ear()


def _said(record: logging.LogRecord) -> str:
    arguments = record.args if isinstance(record.args, tuple) else ()
    for each in (*arguments, record.exc_info[1] if record.exc_info else None):
        if isinstance(each, BaseException):
            return cause_of(each)
    try:
        message = redact(record.getMessage())
    except Exception as error:  # its arguments don't fit
        message = f"{record.msg} ({type(error).__name__})"
    found = _AGAIN.match(message)
    return found[1] if found else message
