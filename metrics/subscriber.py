"""Events to metrics. Each kind of event has one method; what a completed step costs is one dictionary look-up.

Called on the thread that publishes (one per shard).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stepwell.core import events
from stepwell.core.events import WOKEN_BY, Event
from stepwell.core.names import RESERVED
from stepwell.core.rules.facts import step_name
from stepwell.metrics import instruments as i
from stepwell.metrics.sheet import Count, Sheet

__all__ = ["NO_FLOWS", "MetricsSubscriber"]

_FAILURES: Final = {
    "exhausted": "budget",
    "fatal": "fatal",
    "give_up_on": "fatal",
    "not in retry_on": "fatal",
    "payload": "payload",
    "definition": "payload",
    "arguments": "payload",
}
_JUDGED_BY_TYPE: Final = frozenset({"give_up_on", "not in retry_on"})
Ended = events.AttemptFailed | events.StepGaveUp


NO_FLOWS: Final[Mapping[str, Iterable[str]]] = {}
_NO_STEP: Final = "#"
"""As no step is called."""
_KNOWN_MAX: Final = 10 * i.PAIRS_MAX


class _StepMetrics:
    """The series of one step, looked up once. Its counters are all there as soon as one of them is, with 0; histograms
    of what most steps never meet are made when they meet it."""

    __slots__ = (
        "crashes",
        "duration",
        "failures",
        "interrupted",
        "ok",
        "queue",
        "retryable",
        "scheduled",
        "terminal",
        "timeout",
        "to_success",
    )

    def __init__(self, sheet: Sheet, flow: str, step: str) -> None:
        _begin(sheet, flow, step)
        attempts = _each(sheet, i.STEP_ATTEMPTS, flow, step)
        self.ok = attempts["ok"]
        self.retryable = attempts["retryable"]
        self.terminal = attempts["terminal"]
        self.timeout = attempts["timeout"]
        self.interrupted = attempts["interrupted"]
        self.scheduled = _each(sheet, i.STEP_RETRIES_SCHEDULED, flow, step)
        self.failures = _each(sheet, i.STEP_FAILURES, flow, step)
        self.crashes = sheet.count(i.STEP_CRASHES, flow, step)
        self.duration = sheet.spread(i.STEP_DURATION, flow, step)
        self.queue = sheet.spread(i.STEP_QUEUE, flow)
        self.to_success = sheet.spread(i.STEP_ATTEMPTS_TO_SUCCESS, flow, step)


class MetricsSubscriber:
    """Counts what the events tell. Of `flows`, by name with their steps as far as these are known, it shows from the
    start that nothing has happened, so that the first failure is an increase."""

    def __init__(self, sheet: Sheet, flows: Mapping[str, Iterable[str]] = NO_FLOWS) -> None:
        self._sheet = sheet
        for flow, steps in flows.items():
            _each(sheet, i.EXECUTIONS_ENDED, flow)
            _each(sheet, i.EXECUTIONS_PARKED, flow)
            for step in steps:
                _begin(sheet, flow, step)
        self._steps: dict[tuple[str, ...], _StepMetrics] = {}
        self._lateness = sheet.spread(i.RETRY_LATENESS)
        self._handlers: dict[type, Callable[..., None]] = {
            events.ExecutionBegan: self._began,
            events.StepCompleted: self._completed,
            events.AttemptFailed: self._failed,
            events.StepGaveUp: self._gave_up,
            events.BackoffLeft: self._backoff_left,
            events.StepInterrupted: self._interrupted,
            events.ResultDropped: self._dropped,
            events.ExecutionParked: self._parked,
            events.ExecutionEnded: self._ended,
            events.CommandDone: self._command_done,
        }

    def handler(self, kind: type[Event]) -> Callable[..., None] | None:
        """What counts events of that kind; None where no metric tells of it."""
        return self._handlers.get(kind)

    def __call__(self, event: Event) -> None:
        """Count one event; kinds that no metric tells of are passed over."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _began(self, event: events.ExecutionBegan) -> None:
        self._sheet.spread(i.EXECUTION_QUEUE, event.flow).observe(event.waited_ms / 1000)

    def _completed(self, event: events.StepCompleted) -> None:
        step = self._steps.get((event.flow, event.step)) or self._new_step(event.flow, event.step)
        step.ok.numbers[step.ok.at] += 1
        step.to_success.observe(event.attempt)
        step.duration.observe(event.duration_ms / 1000, event.execution_id)
        step.queue.observe(event.queued_ms / 1000, event.execution_id)
        if event.attempt > 1:
            self._lateness.observe(event.queued_ms / 1000, event.execution_id)

    def _failed(self, event: events.AttemptFailed) -> None:
        step = self._step(event.flow, event.step)
        (step.timeout if event.kind == "timeout" else step.retryable).inc(1, event.execution_id)
        self._body_ended(step, event)
        reason = "retry_after" if event.asked and event.kind == "error" else event.kind
        scheduled = step.scheduled.get(reason)
        scheduled = scheduled or self._sheet.count(i.STEP_RETRIES_SCHEDULED, event.flow, event.step, reason)
        scheduled.inc(1, event.execution_id)
        backoff = self._sheet.spread(i.RETRY_BACKOFF, event.flow, event.step)
        backoff.observe(event.delay_ms / 1000, event.execution_id)
        self._sheet.spread(i.STEP_ATTEMPTS_LEFT, event.flow, event.step).observe(event.attempts_left)

    def _gave_up(self, event: events.StepGaveUp) -> None:
        step = self._step(event.flow, event.step)
        if event.kind != "interrupted":  # else no attempt ended there: too many were cut short
            (step.timeout if event.kind == "timeout" else step.terminal).inc(1, event.execution_id)
            self._body_ended(step, event)
        self._step_failed(event.flow, event.step, _reason_of(event), event.execution_id)

    def _step_failed(self, flow: str, step: str, reason: str, execution_id: str) -> None:
        known = self._step(flow, step).failures.get(reason)
        (known or self._sheet.count(i.STEP_FAILURES, flow, step, reason)).inc(1, execution_id)

    def _body_ended(self, step: _StepMetrics, event: Ended) -> None:
        if event.kind == "crash":
            step.crashes.inc()
        if event.started_at is not None:
            step.duration.observe(event.duration_ms / 1000, event.execution_id)
            step.queue.observe(event.queued_ms / 1000, event.execution_id)
            if event.attempt > 1:
                self._lateness.observe(event.queued_ms / 1000, event.execution_id)

    def _backoff_left(self, event: events.BackoffLeft) -> None:
        if event.why in WOKEN_BY:
            self._sheet.count(i.RETRY_WAKEUPS, event.why).inc()
        elif event.why not in ("parked", "unloaded"):  # these two only put it off
            self._sheet.count(i.BACKOFFS_ABANDONED, event.why).inc()

    def _interrupted(self, event: events.StepInterrupted) -> None:
        self._step(event.flow, event.step).interrupted.inc(1, event.execution_id)
        if event.set_apart:
            self._sheet.shared_count(i.SUSPECTS_OPENED, "step").inc()

    def _dropped(self, _event: events.ResultDropped) -> None:
        self._sheet.shared_count(i.DUPLICATES_SUPPRESSED, "result").inc()

    def _parked(self, event: events.ExecutionParked) -> None:
        self._sheet.count(i.EXECUTIONS_PARKED, event.flow, event.reason).inc()
        name = step_name(event.path)
        if name and name not in RESERVED:
            self._step_failed(event.flow, name, "nondeterminism", event.execution_id)

    def _ended(self, event: events.ExecutionEnded) -> None:
        self._sheet.count(i.EXECUTIONS_ENDED, event.flow, event.status).inc()
        self._sheet.spread(i.EXECUTION_DURATION, event.flow).observe(event.duration_ms / 1000, event.execution_id)

    def _command_done(self, event: events.CommandDone) -> None:
        self._sheet.count(i.COMMANDS, event.command, "applied" if event.applied else "refused").inc()

    def _step(self, flow: str, step: str) -> _StepMetrics:
        return self._steps.get((flow, step)) or self._new_step(flow, step)

    def _new_step(self, flow: str, step: str) -> _StepMetrics:
        """Kept by what it is shown as: all of a flow that are too many share one."""
        shown = self._sheet.shown(i.STEP_DURATION, flow, step)
        if shown == (i.OTHER, i.OTHER):
            shown = (*self._sheet.shown(i.STEP_QUEUE, flow), _NO_STEP)
        made = self._steps.get(shown)
        if made is None:
            made = self._steps[shown] = _StepMetrics(self._sheet, flow, step)
        if len(self._steps) < _KNOWN_MAX:
            self._steps[flow, step] = made
        return made


def _begin(sheet: Sheet, flow: str, step: str) -> None:
    """All counters of a step are there, with 0."""
    for counter in (i.STEP_ATTEMPTS, i.STEP_RETRIES_SCHEDULED, i.STEP_FAILURES):
        _each(sheet, counter, flow, step)
    sheet.count(i.STEP_CRASHES, flow, step)
    sheet.shared_count(i.STEP_OVERRUNS, flow, step)


def _each(sheet: Sheet, counter: i.Instrument, *names: str) -> dict[str, Count]:
    """A counter's series of these names, by each value that its last label may have."""
    values = (counter.labels[-1].values or frozenset()) - {i.OTHER}
    return {value: sheet.count(counter, *names, value) for value in sorted(values)}


def _reason_of(event: events.StepGaveUp) -> str:
    if event.kind == "timeout" and event.reason in _JUDGED_BY_TYPE:
        return "deadline"
    return _FAILURES.get(event.reason, event.reason)
