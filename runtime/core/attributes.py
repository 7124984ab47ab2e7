"""Attributes: a few words of the user's own by which executions are found again, such as `{"customer": "c7"}`.

They are given at the start, never change, and are shown to everybody who may look; they are no place for secrets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from stepwell.core.errors import UsageError
from stepwell.core.names import check_name

__all__ = ["ATTRIBUTES_MAX", "VALUE_BYTES_MAX", "Attribute", "Attributes", "check_attributes", "text_of"]

ATTRIBUTES_MAX: Final = 16
VALUE_BYTES_MAX: Final = 256
INTEGER_MAX: Final = 2**53
"""Beyond it JSON readers of other languages round."""

Attribute: TypeAlias = str | int | bool | float
Attributes: TypeAlias = dict[str, Attribute]


def check_attributes(given: Mapping[str, object] | None) -> Attributes | None:
    """The attributes of an execution, None where it has none.

    Raises:
        UsageError: too many, an odd name, or a value that is none; the message names the attribute, never its value.
    """
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise UsageError(f"expected attributes as a mapping of names to values, got {type(given).__name__}")
    if len(given) > ATTRIBUTES_MAX:
        raise UsageError(f"{len(given)} attributes are too many: an execution has at most {ATTRIBUTES_MAX}")
    return {check_name("attribute", name): _checked(name, value) for name, value in given.items()}


def text_of(value: Attribute) -> str:
    """The text by which a value is found: `7`, `true`, `1.5`. So the number 7 and the text "7" are found alike."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _checked(name: str, value: object) -> Attribute:
    what = f"the value of attribute {name!r}"
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > INTEGER_MAX:
            raise UsageError(f"{what} is a whole number beyond 2**53: give it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{what} is not a finite number")
        return float(value)
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, a number, or true or false, got {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is no valid text (half of a surrogate pair)") from error
    if size > VALUE_BYTES_MAX:
        raise UsageError(
            f"{what} has {size:,} bytes, and may have {VALUE_BYTES_MAX}: what is longer belongs in the input"
        )
    return str(value)
