"""Events to metrics. Each kind of event has one method; what a completed step costs is two dictionary look-ups.

Called on the thread that publishes (one per shard); scrapes read from other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwell.core import events
from stepwell.core.errors import StepCrashed
from stepwell.core.events import Event
from stepwell.metrics.names import (
    BACKOFF_ENDS,
    COMMANDS,
    ENDS,
    GIVE_UP_REASONS,
    OTHER,
    PARK_REASONS,
    Metrics,
    one_of,
)
from stepwell.metrics.plain import Count, Spread

__all__ = ["MetricsSubscriber"]

LABEL_PAIRS_MAX = 2_000


@dataclass(slots=True)
class _StepMetrics:
    """The labelled children of one step, looked up once."""

    completed: Count
    failed: Count
    duration: Spread
    backoff: Spread
    retries: Count
    interruptions: Count


class MetricsSubscriber:
    """Counts what the events tell. Past `LABEL_PAIRS_MAX` different flows and steps, new ones count as `other`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._steps: dict[tuple[str, str], _StepMetrics] = {}
        self._flows: set[str] = set()
        self._backing_off: set[tuple[str, str]] = set()
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
        metrics.backing_off.set_function(lambda: len(self._backing_off))

    def __call__(self, event: Event) -> None:
        """Count one event; kinds that are not known yet are ignored."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _began(self, event: events.ExecutionBegan) -> None:
        self._metrics.queue_wait.labels(self._flow(event.flow)).observe(event.waited_ms / 1000)

    def _completed(self, event: events.StepCompleted) -> None:
        step = self._steps.get((event.flow, event.step)) or self._new_step(event.flow, event.step)
        step.completed.inc()
        step.duration.observe(event.duration_ms / 1000)

    def _failed(self, event: events.AttemptFailed) -> None:
        step = self._step(event.flow, event.step)
        step.failed.inc()
        self._crashed(event)
        step.backoff.observe(event.delay_ms / 1000)
        self._backing_off.add((event.execution_id, event.path))

    def _gave_up(self, event: events.StepGaveUp) -> None:
        flow, step = self._names(event.flow, event.step)
        reason = one_of(event.reason, GIVE_UP_REASONS)
        if reason != "interrupted":  # no attempt ended there: too many were cut short
            self._step(flow, step).failed.inc()
            self._crashed(event)
        self._metrics.terminal_failures.labels(flow, step, reason).inc()

    def _crashed(self, event: events.AttemptFailed | events.StepGaveUp) -> None:
        if event.error_type == StepCrashed.__name__:
            self._metrics.step_crashes.labels(*self._names(event.flow, event.step)).inc()

    # A set, not a count: an execution that is rebuilt from its row tells of its backoffs again.
    def _backoff_left(self, event: events.BackoffLeft) -> None:
        self._backing_off.discard((event.execution_id, event.path))
        self._metrics.backoffs_ended.labels(one_of(event.why, BACKOFF_ENDS)).inc()

    def _backoff_resumed(self, event: events.BackoffResumed) -> None:
        self._backing_off.add((event.execution_id, event.path))

    def _retry_started(self, event: events.RetryStarted) -> None:
        self._step(event.flow, event.step).retries.inc()
        self._metrics.retry_lateness.labels().observe(event.lateness_ms / 1000)

    def _interrupted(self, event: events.StepInterrupted) -> None:
        self._step(event.flow, event.step).interruptions.inc()
        if event.set_apart:
            self._metrics.suspects.labels("step").inc()

    def _dropped(self, _event: events.ResultDropped) -> None:
        self._metrics.results_dropped.labels().inc()

    def _parked(self, event: events.ExecutionParked) -> None:
        self._metrics.parked.labels(self._flow(event.flow), one_of(event.reason, PARK_REASONS)).inc()

    def _ended(self, event: events.ExecutionEnded) -> None:
        self._metrics.executions_ended.labels(self._flow(event.flow), one_of(event.status, ENDS)).inc()

    def _command_done(self, event: events.CommandDone) -> None:
        outcome = "applied" if event.applied else "refused"
        self._metrics.commands.labels(one_of(event.command, COMMANDS), outcome).inc()

    def _step(self, flow: str, step: str) -> _StepMetrics:
        return self._steps.get((flow, step)) or self._new_step(flow, step)

    def _new_step(self, flow: str, step: str) -> _StepMetrics:
        flow, step = self._names(flow, step)
        known = self._steps.get((flow, step))
        if known is not None:
            return known
        metrics = self._metrics
        children = _StepMetrics(
            completed=metrics.attempts.labels(flow, step, "completed"),
            failed=metrics.attempts.labels(flow, step, "failed"),
            duration=metrics.step_duration.labels(flow, step),
            backoff=metrics.backoff.labels(flow, step),
            retries=metrics.retries.labels(flow, step),
            interruptions=metrics.interruptions.labels(flow, step),
        )
        self._steps[flow, step] = children
        return children

    def _names(self, flow: str, step: str) -> tuple[str, str]:
        """The pair as labels: itself while it is known or there is room."""
        if (flow, step) in self._steps or len(self._steps) < LABEL_PAIRS_MAX:
            return flow, step
        return OTHER, OTHER

    def _flow(self, flow: str) -> str:
        if flow not in self._flows:
            if len(self._flows) >= LABEL_PAIRS_MAX:
                return OTHER
            self._flows.add(flow)
        return flow
