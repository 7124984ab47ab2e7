"""Moments as people give them: `2h ago`, `90m`, `2026-11-29T10:00Z`, what `--json` prints, or Python's own times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from stepwell.core.durations import span_ms
from stepwell.core.errors import UsageError
from stepwell.core.records import TIME_MAX

__all__ = ["Moment", "moment_ms"]

Moment: TypeAlias = str | datetime | timedelta
"""A time: text, a datetime with a time zone, or how long ago."""

# A number is seconds ago where it is short, and milliseconds since the epoch where it is as long as those of rows;
# eight digits are a date, and what is between is more likely a mistake.
_SECONDS: Final = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?\Z")
_EPOCH_MS: Final = re.compile(r"[0-9]{12,15}\Z")


def moment_ms(given: Moment, now_ms: int) -> int:
    """Milliseconds since the epoch; what is relative counts back from `now_ms`, a text without a time zone is UTC.

    Raises:
        UsageError: it is no time; the message shows what is.
    """
    if isinstance(given, timedelta):
        return _within(now_ms - given // timedelta(milliseconds=1))
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise UsageError("the datetime has no time zone: make it one with datetime.now(UTC) or tzinfo=UTC")
        return _within((given - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
    if not isinstance(given, str):
        raise UsageError(f"expected a time as text, datetime or timedelta, got {type(given).__name__}")
    text = given.strip()
    if _EPOCH_MS.match(text):
        return _within(int(text))
    ago = _ago_ms(text)
    return _absolute(text) if ago is None else _within(now_ms - ago)


def _ago_ms(text: str) -> int | None:
    """How long ago; None where the text is no such time."""
    if _SECONDS.match(text):
        return span_ms(f"{text}s")
    lowered = text.lower()
    return 0 if lowered == "now" else span_ms(lowered.removesuffix("ago"))


def _absolute(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            "expected a time such as '2h ago', '90m', '90' (seconds ago), '2026-11-29', '2026-11-29T10:00Z' (UTC) or"
            f" '1795946400000' (ms, as --json has them), got {text!r:.60}"
        ) from error
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment_ms(moment, 0)


def _within(ms: int) -> int:
    return min(max(ms, 0), TIME_MAX)
