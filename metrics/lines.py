"""A line of what happens, with the name of its event and its fields as docs/logs.md has them."""

from __future__ import annotations

import logging

__all__ = ["say"]


def say(
    logger: logging.Logger,
    level: int,
    event: str,
    message: str,
    /,
    *arguments: object,
    raised: BaseException | None = None,
    **fields: object,
) -> None:
    """Log a line. `raised`: its traceback stands below; fields that are None are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    logger.log(level, message, *arguments, exc_info=raised, extra={"fields": {**known, "event": event}})
