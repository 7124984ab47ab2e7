"""Attempts of `asked`'s steps, counted twice: as a receiver saw them, and as the rows have them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from system.support.effects import EffectReceiver

Pair = tuple[str, str]
"""Flow and step, or flow and status."""
Triple = tuple[str, str, str]
"""Flow, step, and how or why."""

_REASONS = {"": "budget", "fatal": "fatal", "payload": "payload", "give_up_on": "fatal"}
_CAUSES = {"StepTimeout": "timeout", "StepCrashed": "crash", "RetryAfter": "retry_after"}


class Tally(EffectReceiver):
    """Each attempt tells it what it is, before it does what it is to do. Who is to `hold` waits for `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []
        self.release = threading.Event()

    def receive(self, key: str, body: dict[str, Any]) -> int:
        """Write it down."""
        with self._lock:
            self.told.append(body)
            count = len(self.told)
        if body["does"] == "hold":
            self.release.wait()
        return count

    @property
    def attempts(self) -> Counter[Pair]:
        """How many began, by flow and step."""
        return Counter((each["flow"], each["step"]) for each in self.told)

    def did(self, *words: str) -> int:
        """How many were to do one of these."""
        return sum(each["does"] in words for each in self.told)


class Rows:
    """What rows say, as `describe` shows them, counted as metrics are. Times in seconds."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.attempts: Counter[Triple] = Counter()
        self.scheduled: Counter[Triple] = Counter()
        self.failures: Counter[Triple] = Counter()
        self.ended: Counter[Pair] = Counter()
        self.backoffs: list[float] = []
        self.latenesses: list[float] = []
        self.durations: list[float] = []
        self.to_success: list[float] = []
        self.retried: dict[str, set[str]] = {}
        """Executions with retries, by flow."""
        for row in rows:
            self.ended[row["flow"], row["status"]] += 1
            for shown in row["steps"]:
                self._add(row["flow"], row["id"], shown["path"], shown["attempts"])

    def _add(self, flow: str, execution: str, step: str, attempts: list[dict[str, Any]]) -> None:
        due: int | None = None
        for each in attempts:
            took = (each["ended_at"] - each["started_at"]) / 1000
            outcome = _outcome(each)
            self.attempts[flow, step, outcome] += 1
            self.durations.append(took)
            if due is not None:
                self.latenesses.append(max(0, each["started_at"] - due) / 1000)
            due = each["due_at"]
            if outcome == "ok":
                self.to_success.append(each["n"])
            elif due is None:
                self.failures[flow, step, _reason(each["error"])] += 1
            else:
                self.scheduled[flow, step, _CAUSES.get(each["error"]["type"], "error")] += 1
                self.backoffs.append((due - each["ended_at"]) / 1000)
                self.retried.setdefault(flow, set()).add(execution)


def _outcome(attempt: dict[str, Any]) -> str:
    if attempt["error"] is None:
        return "ok"
    if attempt["error"]["type"] == "StepTimeout":
        return "timeout"
    return "terminal" if attempt["due_at"] is None else "retryable"


def _reason(error: dict[str, Any]) -> str:
    deadline = error["type"] == "StepTimeout" and error["reason"]
    return "deadline" if deadline else _REASONS[error["reason"]]
