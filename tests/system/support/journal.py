"""Reads the journal that step bodies write: what really ran, whatever the row says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


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
    """The journal of one test."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def runs(self, execution: str | None = None, path: str | None = None) -> list[Run]:
        """What ran, in order; of one execution and path if they are given."""
        if not self.file.exists():
            return []
        found = [Run(**json.loads(line)) for line in self.file.read_text().splitlines()]
        return [run for run in found if execution in (None, run.execution) and path in (None, run.path)]

    def attempts(self, execution: str, path: str) -> list[int]:
        """The numbers of the attempts of one step that ran, in order."""
        return [run.attempt for run in self.runs(execution, path)]
