"""What was refused, and why."""

from __future__ import annotations

from collections.abc import Callable


def refusal(act: Callable[[], object], *kinds: type[Exception]) -> str:
    """What the error says where it is one of these; empty where it was done."""
    try:
        act()
    except kinds as error:
        return str(error) or "nothing"
    return ""
