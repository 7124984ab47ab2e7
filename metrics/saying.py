"""A line of what happens, with the name of its event and its fields as docs/logs.md has them."""

from __future__ import annotations

import logging
from typing import Final

from stepwell.core.redact import redact

__all__ = ["say"]

CALLERS: Final = 3
"""Frames up from here: this one, that of `note` or `tell`, and the one that has something to say."""


def say(
    logger: logging.Logger,
    level: int,
    event: str,
    message: str,
    /,
    *arguments: object,
    traceback: str = "",
    **fields: object,
) -> None:
    """Log a line, with a traceback below if there is one; fields that are None are left out. For `note` and `tell`:
    the line comes from where they are called."""
    if not logger.isEnabledFor(level):
        return
    known = {name: value for name, value in fields.items() if value is not None}
    file, number, function, _ = logger.findCaller(stacklevel=CALLERS)
    extra = {"fields": {**known, "event": event}}
    record = logger.makeRecord(logger.name, level, file, number, message, arguments, None, function, extra)
    # As text and without credentials: who runs a worker in a program of their own may have another formatter.
    record.exc_text = redact(traceback) or None
    logger.handle(record)
