"""Which shard hangs: one whose scheduler has been at a single turn for long, as its black box shows from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stepwell.actors.boxlayout import ATTEMPTS_AT
from stepwell.actors.boxreport import parse_box
from stepwell.actors.kit.clock import monotonic

__all__ = ["Hangs"]

LOOKS_MIN: Final = 10
"""So often must the same turn be seen: a host that was suspended has turns that are long and hang not."""


class Hangs:
    """Looks at boxes now and then; each is known by its path."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[str, float], int]] = {}

    def look(self, path: Path) -> None:
        """Read the turn in one box; what can't be read is no turn."""
        turn = _turn(path)
        if turn is None:
            self._seen.pop(path, None)
            return
        known, looks = self._seen.get(path, (turn, 0))
        self._seen[path] = (turn, looks + 1 if known == turn else 1)

    def busy_seconds(self, path: Path) -> float:
        """For how long the shard has been at its present turn; 0 while that is not known for sure."""
        turn, looks = self._seen.get(path, (("", 0.0), 0))
        return monotonic() - turn[1] if looks >= LOOKS_MIN else 0.0

    def forget(self, path: Path) -> None:
        """That shard is gone."""
        self._seen.pop(path, None)


def _turn(path: Path) -> tuple[str, float] | None:
    try:
        with path.open("rb") as file:
            report = parse_box(file.read(ATTEMPTS_AT), 0.0)
    except OSError:
        return None
    return None if report is None else report.turn
