"""Reads the journal that step bodies write: what really ran, whatever the row says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a step's body; `at` is monotonic seconds, comparable between processes of this machine."""

    execution: str
    path: str
    attempt: int
    key: str
    at: float
    pid: int


class Journal:
    """The journal of one test. Of a line that is just being written one may see a part: it is not there yet."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def runs(self, execution: str | None = None, path: str | None = None) -> list[Run]:
        """What ran, in order; of one execution and path if they are given."""
        found = [Run(**entry) for entry in self.entries()]
        return [run for run in found if execution in (None, run.execution) and path in (None, run.path)]

    def entries(self) -> list[dict[str, Any]]:
        """All that is written in it, as it stands, in order."""
        if not self.file.exists():
            return []
        *whole, _ = self.file.read_text().split("\n")
        return [json.loads(line) for line in whole]

    def attempts(self, execution: str, path: str) -> list[int]:
        """The numbers of the attempts of one step that ran, in order."""
        return [run.attempt for run in self.runs(execution, path)]
