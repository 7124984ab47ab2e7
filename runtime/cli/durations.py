"""Options that are durations or times: checked as they are read, so that no command begins with one that is none."""

from __future__ import annotations

import typer

from stepwell.core.durations import SECONDS_MAX, parsed
from stepwell.core.errors import UsageError
from stepwell.core.moments import moment_ms

__all__ = ["Seconds", "When"]


class Seconds:
    """The parser of an option: `90`, `1.5`, `90s`, `10m`, `1h30m`, from `least` to `most` seconds. `else_`: what to do
    where no such number is meant."""

    __name__ = "seconds"

    def __init__(self, least: float = 0.0, most: float = SECONDS_MAX, else_: str = "") -> None:
        self.least = least
        self.most = most
        self._else = else_

    def __call__(self, text: str | float) -> float:
        """The seconds. Raises typer.BadParameter."""
        try:
            return parsed(str(text), "it", least=self.least, most=self.most)
        except UsageError as error:
            raise typer.BadParameter(f"{error}{self._else}") from error


class When:
    """The parser of an option that is a moment: `2h ago`, `1h30m`, `90`, ISO 8601, or milliseconds since the epoch."""

    __name__ = "time"

    def __call__(self, text: str) -> str:
        """The text. Raises typer.BadParameter where it is no moment."""
        try:
            moment_ms(text, 0)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error
        return text
