"""Moments as people give them: `2h ago`, `90m`, `2026-11-29T10:00Z`, or Python's own times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from stepwell.core.errors import UsageError
from stepwell.core.records import TIME_MAX

__all__ = ["Moment", "ago_ms", "moment_ms"]

Moment: TypeAlias = str | datetime | timedelta
"""A time: text, a datetime with a time zone, or how long ago."""

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS: Final = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]{1,10})\s*")


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
    ago = ago_ms(given)
    return _absolute(given) if ago is None else _within(now_ms - ago)


def ago_ms(given: str) -> int | None:
    """How many milliseconds ago `2h`, `1h30m ago` or `2 days ago` is; None for another kind of text."""
    text = given.strip().lower()
    rest = text.removesuffix("ago").strip()
    if rest in ("now", ""):
        return 0 if text == "now" else None
    total, place = 0.0, 0
    while place < len(rest):
        part = _PART.match(rest, place)
        word = part[2] if part else ""
        unit = _UNITS.get(word) or _UNITS.get(_WORDS.get(word.removesuffix("s"), ""))
        if part is None or unit is None:
            return None
        total += float(part[1]) * unit
        place = part.end()
    return round(total)


def _absolute(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"expected a time such as '2h ago', '90m', '2026-11-29' or '2026-11-29T10:00Z' (UTC), got {text!r:.60}"
        ) from error
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment_ms(moment, 0)


def _within(ms: int) -> int:
    return min(max(ms, 0), TIME_MAX)
