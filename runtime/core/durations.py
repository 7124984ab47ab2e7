"""Durations as people give them: numbers of seconds, timedeltas, and texts such as `90s`, `10m`, `1h30m`.

Every option and argument that is a duration is checked here, so that none of them takes an infinity, a NaN, a negative
number or one that no clock can count.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from stepwell.core.errors import StepwellError, UsageError

__all__ = ["SECONDS_MAX", "parsed", "seconds", "span_ms"]

SECONDS_MAX: Final = 3.2e9
"""A century: a due time stays a whole number of milliseconds."""

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS: Final = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]{1,10})\s*")
_NUMBER: Final = re.compile(r"(?:[0-9]{1,12}\.?[0-9]{0,12}|\.[0-9]{1,12})\Z")
_SHOWN_MAX: Final = 60


def seconds(
    given: object,
    what: str,
    *,
    least: float = 0.0,
    most: float = SECONDS_MAX,
    above: bool = False,
    error: type[StepwellError] = UsageError,
) -> float:
    """A number of seconds, or a timedelta, as a float. `what` it is, for the message; `above`: more than `least`.

    Raises:
        UsageError: it is none, or not from `least` to `most`; or what `error` says instead.
    """
    value = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise error(_expected(given, what, least, most, above))
    if above and value == least:
        raise error(_expected(given, what, least, most, above))
    return float(value)


def parsed(text: str, what: str, *, least: float = 0.0, most: float = SECONDS_MAX) -> float:
    """A text as seconds: `90`, `1.5`, `90s`, `10m`, `1h30m`.

    Raises:
        UsageError: it is none, or not from `least` to `most`.
    """
    given = text.strip()
    ms = span_ms(f"{given}s" if given.isdecimal() and len(given) <= 9 else given)
    value = ms / 1000 if ms is not None else float(given) if _NUMBER.match(given) else None
    if value is None or not least <= value <= most:
        raise UsageError(f"{_expected(text, what, least, most, False)}; it may be a span such as 90s, 10m or 1h30m")
    return value


def span_ms(text: str) -> int | None:
    """How many milliseconds `2h`, `1h30m` or `2 days` is; None for another kind of text."""
    rest = text.strip().lower()
    if not rest:
        return None
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


def _expected(given: object, what: str, least: float, most: float, above: bool) -> str:
    top = "3.2e9 (a century)" if most == SECONDS_MAX else f"{most:g}"
    bounds = f"above {least:g}, up to {top}" if above else f"from {least:g} to {top}"
    return f"expected {what} to be a number of seconds {bounds}, got {_shown(given)}"


def _shown(given: object) -> str:
    if type(given) is int and abs(given) > SECONDS_MAX:
        return f"a whole number of {given.bit_length()} bits"  # Python refuses to write out the longest ones
    return f"{given!r:.{_SHOWN_MAX}}"
