"""Events to metrics. Each kind of event has one method; what a completed step costs is two dictionary look-ups.

Called on the thread that publishes (one per shard).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwell.core import events
from stepwell.core.errors import StepCrashed
from stepwell.core.events import Event
from stepwell.metrics import instruments as i
from stepwell.metrics.sheet import Count, Sheet, Spread

__all__ = ["MetricsSubscriber"]

_ABANDONED = frozenset({"cancel", "gather", "parked"})
_FAILURES = {
    "exhausted": "budget",
    "give_up_on": "fatal",
    "not in retry_on": "fatal",
    "arguments": "payload",
}


@dataclass(slots=True)
class _StepMetrics:
    """The series of one step, looked up once."""

    ok: Count
    retryable: Count
    terminal: Count
    interrupted: Count
    duration: Spread
    backoff: Spread


class MetricsSubscriber:
    """Counts what the events tell."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._steps: dict[tuple[str, str], _StepMetrics] = {}
        self._lateness = sheet.spread(i.RETRY_LATENESS)
        self._backing_off: dict[tuple[str, str], str] = {}
        self._backing_off_of: dict[str, int] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            events.ExecutionBegan: self._began,
            events.StepCompleted: self._completed,
            events.AttemptFailed: self._failed,
            events.StepGaveUp: self._gave_up,
            events.BackoffLeft: self._backoff_left,
            events.BackoffResumed: self._backoff_resumed,
            events.RetryStarted: self._retry_started,
            events.StepInterrupted: self._interrupted,
            events.ResultDropped: self._dropped,
            events.ExecutionParked: self._parked,
            events.ExecutionEnded: self._ended,
            events.CommandDone: self._command_done,
        }

    def __call__(self, event: Event) -> None:
        """Count one event; kinds that are not known yet are ignored."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _began(self, event: events.ExecutionBegan) -> None:
        self._sheet.spread(i.EXECUTION_QUEUE, event.flow).observe(event.waited_ms / 1000)

    def _completed(self, event: events.StepCompleted) -> None:
        step = self._steps.get((event.flow, event.step)) or self._new_step(event.flow, event.step)
        step.ok.inc()
        step.duration.observe(event.duration_ms / 1000, event.execution_id)

    def _failed(self, event: events.AttemptFailed) -> None:
        step = self._step(event.flow, event.step)
        step.retryable.inc(1, event.execution_id)
        crashed = self._crashed(event)
        reason = "crash" if crashed else "retry_after" if event.asked else "error"
        scheduled = self._sheet.count(i.STEP_RETRIES_SCHEDULED, event.flow, event.step, reason)
        scheduled.inc(1, event.execution_id)
        step.backoff.observe(event.delay_ms / 1000, event.execution_id)
        self._backs_off(event)

    def _gave_up(self, event: events.StepGaveUp) -> None:
        if event.reason != "interrupted":  # no attempt ended there: too many were cut short
            self._step(event.flow, event.step).terminal.inc(1, event.execution_id)
            self._crashed(event)
        reason = _FAILURES.get(event.reason, event.reason)
        self._sheet.count(i.STEP_FAILURES, event.flow, event.step, reason).inc(1, event.execution_id)

    def _crashed(self, event: events.AttemptFailed | events.StepGaveUp) -> bool:
        crashed = event.error_type == StepCrashed.__name__
        if crashed:
            self._sheet.count(i.STEP_CRASHES, event.flow, event.step).inc()
        return crashed

    # Noted by name, not counted: an execution that is rebuilt from its row tells of its backoffs again.
    def _backs_off(self, event: events.AttemptFailed | events.BackoffResumed) -> None:
        key = (event.execution_id, event.path)
        if key not in self._backing_off:
            self._backing_off[key] = event.flow
            self._back_off(event.flow, 1)

    def _back_off(self, flow: str, change: int) -> None:
        count = self._backing_off_of.get(flow, 0) + change
        self._backing_off_of[flow] = count
        self._sheet.level(i.EXECUTIONS_BACKING_OFF, flow).set(count)

    def _backoff_left(self, event: events.BackoffLeft) -> None:
        flow = self._backing_off.pop((event.execution_id, event.path), None)
        if flow is not None:
            self._back_off(flow, -1)
        if event.why in _ABANDONED:
            self._sheet.count(i.BACKOFFS_ABANDONED, event.why).inc()
        elif event.why != "unloaded":
            self._sheet.count(i.RETRY_WAKEUPS, event.why).inc()

    def _backoff_resumed(self, event: events.BackoffResumed) -> None:
        self._backs_off(event)

    def _retry_started(self, event: events.RetryStarted) -> None:
        self._lateness.observe(event.lateness_ms / 1000, event.execution_id)

    def _interrupted(self, event: events.StepInterrupted) -> None:
        self._step(event.flow, event.step).interrupted.inc(1, event.execution_id)
        if event.set_apart:
            self._sheet.shared_count(i.SUSPECTS_OPENED, "step").inc()

    def _dropped(self, _event: events.ResultDropped) -> None:
        self._sheet.count(i.DUPLICATES_SUPPRESSED, "result").inc()

    def _parked(self, event: events.ExecutionParked) -> None:
        self._sheet.count(i.EXECUTIONS_PARKED, event.flow, event.reason).inc()

    def _ended(self, event: events.ExecutionEnded) -> None:
        self._sheet.count(i.EXECUTIONS_ENDED, event.flow, event.status).inc()
        self._sheet.spread(i.EXECUTION_DURATION, event.flow).observe(event.duration_ms / 1000, event.execution_id)

    def _command_done(self, event: events.CommandDone) -> None:
        self._sheet.count(i.COMMANDS, event.command, "applied" if event.applied else "refused").inc()

    def _step(self, flow: str, step: str) -> _StepMetrics:
        return self._steps.get((flow, step)) or self._new_step(flow, step)

    def _new_step(self, flow: str, step: str) -> _StepMetrics:
        sheet = self._sheet
        made = _StepMetrics(
            ok=sheet.count(i.STEP_ATTEMPTS, flow, step, "ok"),
            retryable=sheet.count(i.STEP_ATTEMPTS, flow, step, "retryable"),
            terminal=sheet.count(i.STEP_ATTEMPTS, flow, step, "terminal"),
            interrupted=sheet.count(i.STEP_ATTEMPTS, flow, step, "interrupted"),
            duration=sheet.spread(i.STEP_DURATION, flow, step),
            backoff=sheet.spread(i.RETRY_BACKOFF, flow, step),
        )
        if len(self._steps) < i.PAIRS_MAX:
            self._steps[flow, step] = made
        return made
