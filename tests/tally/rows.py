"""What the rows say: every number that can be told from what Redis holds of some executions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from tally.numbers import Tally

from stepwell.core import records
from stepwell.core.records import Attempt, Fact, TerminalError
from stepwell.core.rules.facts import step_name
from stepwell.core.rules.steps import ATTEMPTS_KEPT
from stepwell.core.status import (
    STEP_BACKOFF,
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_FAILED,
    STEP_RUNNING,
    TERMINAL,
)
from stepwell.metrics import instruments as i

INTERRUPTED = "interrupted"
BUDGET = "budget"
_FAILURES = {
    "": BUDGET,
    "fatal": "fatal",
    "give_up_on": "fatal",
    "not in retry_on": "fatal",
    "definition": "fatal",
    "arguments": "payload",
    "payload": "payload",
}
_REASONS = {"StepTimeout": "timeout", "StepCrashed": "crash", "RetryAfter": "retry_after"}

# What rows tell to the last one, whatever happened to the shards.
TOLD_BY_ROWS = (
    i.STEP_ATTEMPTS,
    i.STEP_RETRIES_SCHEDULED,
    i.STEP_FAILURES,
    i.STEP_CRASHES,
    i.RETRY_BACKOFF,
    i.STEP_ATTEMPTS_LEFT,
    i.STEP_ATTEMPTS_TO_SUCCESS,
    i.STEP_DURATION,
    i.EXECUTIONS_ENDED,
    i.EXECUTION_DURATION,
    i.EXECUTION_QUEUE,
)


def tally_of(rows: Mapping[str, Mapping[str, bytes]], here: Container[str]) -> Tally:
    """Of executions by their ids; each row must be whole (not over the number of attempts and failures it keeps).

    `here`: names of the flows that the shards know; any other counts as `other`.
    """
    tally = Tally()
    for fields in rows.values():
        _Row(fields, tally, here).count()
    return tally


class Later(NamedTuple):
    """An attempt that followed a failed one and whose end is known: when its body began, and when the row says that it
    was due; None: the one before was the last, until a person asked for more."""

    began: int
    due: int | None


def later_of(fields: Mapping[str, bytes]) -> dict[tuple[str, int], Later]:
    """Those of a row, by path and number."""
    dues: dict[tuple[str, int], int] = {}
    begins: dict[tuple[str, int], int | None] = {}
    for name, raw in fields.items():
        if name.startswith("a:"):
            path, attempt = name[2:].rpartition(":")[0], records.decode_attempt(raw)
            begins[path, attempt.n] = attempt.started_at
            if attempt.due_at is not None:
                dues[path, attempt.n + 1] = attempt.due_at
        elif name.startswith("r:"):
            fact = records.decode_fact(raw)
            if fact.status == STEP_COMPLETED:
                begins[name[2:], fact.attempt] = fact.started_at
    return {
        (path, n): Later(began, dues.get((path, n)))
        for (path, n), began in begins.items()
        if n > 1 and began is not None
    }


def lateness_of(rows: Iterable[Mapping[str, bytes]], moved_ms: int = 0) -> Tally:
    """How late bodies began that their timers have started, where nobody died: those that somebody started by hand
    began before they were due, and the rows do not say how long after they were asked for.

    `moved_ms`: by so much a clock that follows the server's may have been set back while a timer ran, so that the body
    began before the due time, and is told not to be late; nobody starts one by hand so short before."""
    tally = Tally()
    for fields in rows:
        for began, due in later_of(fields).values():
            if due is not None and began >= due - moved_ms:
                tally.observe(i.RETRY_LATENESS, value=max(0, began - due) / 1000)
    return tally


class _Row:
    def __init__(self, fields: Mapping[str, bytes], tally: Tally, here: Container[str]) -> None:
        self._fields = fields
        self._tally = tally
        self._meta = records.decode_meta(fields["meta"])
        self._flow = self._meta.flow if self._meta.flow in here else i.OTHER
        self._began = int(fields["started_at"]) if "started_at" in fields else None
        self._facts = {name[2:]: records.decode_fact(raw) for name, raw in fields.items() if name.startswith("r:")}
        self._failures: list[TerminalError] = list(records.decode_failures(fields.get("failures", b"[]")))

    def count(self) -> None:
        if self._began is not None:
            self._seconds(i.EXECUTION_QUEUE, self._flow, ms=self._began - self._meta.created_at)
        self._count_ends()
        for name, raw in self._fields.items():
            if name.startswith("a:"):
                self._failed(name[2:].rpartition(":")[0], records.decode_attempt(raw))
        for path, fact in self._facts.items():
            if fact.kind == records.STEP:
                self._closed(path, fact)
        for name, raw in self._fields.items():
            if name.startswith("p:"):
                op = records.decode_open(raw)
                self._interrupted(name[2:], op.cuts)
                self._tally.backing_off += op.status == STEP_BACKOFF
                self._tally.running += op.status == STEP_RUNNING

    def _count_ends(self) -> None:
        ends = [("error", failure.at) for failure in self._failures]
        status = self._fields["status"].decode()
        if status in TERMINAL:
            ends.append((status, int(self._fields["ended_at"])))
        for outcome, at in ends:
            self._tally.count(i.EXECUTIONS_ENDED, self._flow, outcome)
            self._seconds(i.EXECUTION_DURATION, self._flow, ms=at - (at if self._began is None else self._began))
        for failure in self._failures:
            for path, left in failure.open.items():
                if left.status == STEP_FAILED:  # a retry counts them from 0 again
                    self._interrupted(path, left.cuts)
                    if failure.type == "Interrupted" and failure.failed_step and failure.failed_step.path == path:
                        self._tally.count(i.STEP_FAILURES, self._flow, step_name(path), INTERRUPTED)

    def _failed(self, path: str, attempt: Attempt) -> None:
        pair = self._flow, step_name(path)
        tally, error = self._tally, attempt.error
        assert attempt.n <= 2 * ATTEMPTS_KEPT, f"{path}: its row does not keep all attempts"
        if error.type == "StepCrashed":
            tally.count(i.STEP_CRASHES, *pair)
        is_last = attempt.due_at is None
        outcome = "terminal" if is_last else "retryable"
        tally.count(i.STEP_ATTEMPTS, *pair, "timeout" if error.type == "StepTimeout" else outcome)
        if attempt.started_at is not None:
            self._seconds(i.STEP_DURATION, *pair, ms=attempt.ended_at - attempt.started_at)
            tally.later += attempt.n > 1
        if attempt.due_at is not None:
            tally.count(i.STEP_RETRIES_SCHEDULED, *pair, _REASONS.get(error.type, "error"))
            self._seconds(i.RETRY_BACKOFF, *pair, ms=attempt.due_at - attempt.ended_at)
            tally.observe(i.STEP_ATTEMPTS_LEFT, *pair, value=attempt.last - attempt.n)
        else:
            why = self._why(path, attempt)
            if why:
                tally.count(i.STEP_FAILURES, *pair, why)
            else:
                tally.count_either(i.STEP_FAILURES, (*pair, "cancel"), (*pair, "gather"))

    def _why(self, path: str, attempt: Attempt) -> str:
        """Why the attempt was the step's last one, or was until a person asked for more; empty: a cancel or a gather,
        whichever came first, and the row does not tell."""
        error = attempt.error
        if error.reason == "give_up_on" and error.type == "StepTimeout":
            return "deadline"
        if error.reason:
            return _FAILURES[error.reason]
        for failure in self._failures:
            left = failure.open.get(path)
            if left is not None and left.attempts == attempt.n:
                return BUDGET if left.status == STEP_FAILED else "gather"
        if self._facts[path].status != STEP_CANCELLED:
            return BUDGET
        if "/" not in path:
            return "cancel"  # no gather is around it
        # A retry takes away that there was a cancel.
        return "" if "cancelling" in self._fields or self._failures else "gather"

    def _closed(self, path: str, fact: Fact) -> None:
        pair = self._flow, step_name(path)
        if not fact.superseded:  # else the failure has it
            self._interrupted(path, fact.cuts)
            if fact.error is not None and fact.error.reason == INTERRUPTED:
                self._tally.count(i.STEP_FAILURES, *pair, INTERRUPTED)
        if fact.status == STEP_COMPLETED:
            assert fact.started_at is not None
            self._tally.count(i.STEP_ATTEMPTS, *pair, "ok")
            self._tally.observe(i.STEP_ATTEMPTS_TO_SUCCESS, *pair, value=fact.attempt)
            self._seconds(i.STEP_DURATION, *pair, ms=fact.ended_at - fact.started_at)
            self._tally.later += fact.attempt > 1

    def _interrupted(self, path: str, times: int) -> None:
        if times:
            self._tally.count(i.STEP_ATTEMPTS, self._flow, step_name(path), INTERRUPTED, n=times)

    def _seconds(self, instrument: i.Instrument, *labels: str, ms: int) -> None:
        self._tally.observe(instrument, *labels, value=max(0, ms) / 1000)
