"""Events become the metrics that docs/metrics.md says."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from stepwell.core import events
from stepwell.metrics.folding import Names
from stepwell.metrics.instruments import STEP_DURATION
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals

Value = Callable[..., float | None]
STEP = {"flow": "checkout", "step": "charge"}
WHERE = ("order-7", "checkout", "charge", "charge#2")


@pytest.fixture
def tell(sheet: Sheet) -> MetricsSubscriber:
    return MetricsSubscriber(sheet)


def samples(sheet: Sheet) -> list[tuple[str, dict[str, str], float]]:
    totals = Totals()
    totals.attach(0, sheet.source)
    return list(samples_of(totals.take()))


UNCOUNTED = (
    events.BackoffResumed,
    events.ExecutionResumed,
    events.RetryStarted,
    events.StepCancelled,
    events.WaitBegan,
    events.WaitEnded,
)


def test_every_kind_of_event_moves_a_metric_but_those_that_tell_of_no_count(one_of_each: list[events.Event]) -> None:
    assert {type(event) for event in one_of_each} == set(events.EVENTS)
    for event in one_of_each:
        sheet = Sheet.in_memory()
        tell = MetricsSubscriber(sheet)
        before = samples(sheet)
        tell(event)
        assert (samples(sheet) == before) == isinstance(event, UNCOUNTED), event


def test_of_flows_and_steps_that_are_known_it_is_shown_at_once_that_nothing_has_happened(sheet: Sheet) -> None:
    MetricsSubscriber(sheet, {"checkout": ["charge"], "refund": []})
    shown = [(name, labels["flow"]) for name, labels, value in samples(sheet) if "flow" in labels and value == 0]
    assert len(shown) == len(samples(sheet)) - len([name for name, labels, _ in samples(sheet) if "flow" not in labels])
    assert Counter(shown) == {
        ("stepwell_executions_total", "checkout"): 3,
        ("stepwell_executions_total", "refund"): 3,
        ("stepwell_executions_parked_total", "checkout"): 5,
        ("stepwell_executions_parked_total", "refund"): 5,
        ("stepwell_step_attempts_total", "checkout"): 5,
        ("stepwell_step_retries_scheduled_total", "checkout"): 4,
        ("stepwell_step_failures_total", "checkout"): 8,
        ("stepwell_step_crashes_total", "checkout"): 1,
        ("stepwell_step_overruns_total", "checkout"): 1,
    }


@pytest.mark.parametrize(
    "first", [events.StepCompleted, events.AttemptFailed, events.StepGaveUp, events.StepInterrupted]
)
def test_of_a_step_that_was_not_known_all_counters_begin_with_its_first_event(
    tell: MetricsSubscriber, sheet: Sheet, one_of_each: list[events.Event], first: type
) -> None:
    [event] = [each for each in one_of_each if type(each) is first]
    tell(event)
    assert {name: len(found) for name, found in of_steps(sheet).items()} == {
        "stepwell_step_attempts_total": 5,
        "stepwell_step_retries_scheduled_total": 4,
        "stepwell_step_failures_total": 8,
        "stepwell_step_crashes_total": 1,
        "stepwell_step_overruns_total": 1,
    }


def of_steps(sheet: Sheet) -> dict[str, list[float]]:
    """The values of all series of steps' counters, by name."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, labels, value in samples(sheet):
        if name.endswith("_total") and "step" in labels:
            found[name].append(value)
    return found


def test_a_step_that_never_fails_has_no_series_that_tell_how_failures_are_spread(
    tell: MetricsSubscriber, sheet: Sheet, failed: events.AttemptFailed
) -> None:
    tell(events.StepCompleted(*WHERE, 1, 120, 9, 1_000))
    own = [name for name, labels, _ in samples(sheet) if labels.get("step") == "charge"]
    assert len(own) == 52
    assert not any("backoff" in name or "attempts_left" in name for name in own)
    tell(failed)
    assert len([name for name, labels, _ in samples(sheet) if labels.get("step") == "charge"]) == 80


def test_how_late_a_retry_began_is_observed_once_it_has_ended(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed, gave_up: events.StepGaveUp
) -> None:
    tell(events.StepCompleted(*WHERE, 1, 120, 9, 1_000))
    tell(replace(failed, attempt=1, queued_ms=1_000))
    tell(replace(gave_up, attempt=1, queued_ms=1_000))
    assert value("retry_lateness_seconds_count") == 0, "a first attempt is no retry"
    tell(events.RetryStarted(*WHERE, 2, 5_000, 9))
    assert value("retry_lateness_seconds_count") == 0, "it may be cut short, and run again"
    tell(events.StepCompleted(*WHERE, 2, 120, 9, 2_000))
    tell(replace(failed, attempt=2, queued_ms=4_000))
    tell(replace(gave_up, attempt=5, queued_ms=8_000))
    assert value("retry_lateness_seconds_count") == 3
    assert value("retry_lateness_seconds_sum") == pytest.approx(2 + 4 + 8)


def test_five_failed_attempts_are_four_backoffs_and_one_terminal_failure(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed, gave_up: events.StepGaveUp
) -> None:
    for attempt in range(1, 5):
        tell(replace(failed, attempt=attempt, delay_ms=200 * 2**attempt))
        tell(events.BackoffLeft(*WHERE, "timer", 2, 0))
    tell(gave_up)
    assert value("step_attempts_total", **STEP, outcome="retryable") == 4
    assert value("step_attempts_total", **STEP, outcome="terminal") == 1
    assert value("step_attempts_total", **STEP, outcome="ok") == 0
    assert value("step_retries_scheduled_total", **STEP, reason="error") == 4
    assert value("retry_backoff_seconds_count", **STEP) == 4
    assert value("retry_backoff_seconds_sum", **STEP) == pytest.approx(0.4 + 0.8 + 1.6 + 3.2)
    assert value("step_attempts_left_sum", **STEP) == 4 + 3 + 2 + 1
    assert value("step_duration_seconds_count", **STEP) == 5
    assert value("step_queue_seconds_count", flow="checkout") == 5
    assert value("retry_lateness_seconds_count") == 4
    assert value("step_failures_total", **STEP, reason="budget") == 1
    assert value("retry_wakeups_total", source="timer") == 4


@pytest.mark.parametrize(
    ("kind", "asked", "outcome", "reason"),
    [
        ("error", False, "retryable", "error"),
        ("error", True, "retryable", "retry_after"),
        ("timeout", False, "timeout", "timeout"),
        ("crash", False, "retryable", "crash"),
    ],
)
def test_what_ended_an_attempt_is_told_apart(
    tell: MetricsSubscriber,
    value: Value,
    failed: events.AttemptFailed,
    kind: Any,
    asked: bool,
    outcome: str,
    reason: str,
) -> None:
    tell(replace(failed, kind=kind, asked=asked))
    assert value("step_attempts_total", **STEP, outcome=outcome) == 1
    assert value("step_retries_scheduled_total", **STEP, reason=reason) == 1
    assert value("step_crashes_total", **STEP) == (kind == "crash")


@pytest.mark.parametrize(
    ("reason", "kind", "counted"),
    [
        ("exhausted", "error", "budget"),
        ("exhausted", "timeout", "budget"),
        ("fatal", "error", "fatal"),
        ("give_up_on", "error", "fatal"),
        ("give_up_on", "timeout", "deadline"),
        ("not in retry_on", "error", "fatal"),
        ("not in retry_on", "timeout", "deadline"),
        ("payload", "error", "payload"),
        ("definition", "error", "payload"),
        ("arguments", "error", "payload"),
        ("interrupted", "interrupted", "interrupted"),
        ("cancel", "error", "cancel"),
        ("gather", "error", "gather"),
        ("a new reason", "error", "other"),
    ],
)
def test_each_reason_to_give_up_has_its_word(
    tell: MetricsSubscriber, value: Value, gave_up: events.StepGaveUp, reason: str, kind: Any, counted: str
) -> None:
    tell(replace(gave_up, reason=reason, kind=kind))
    assert value("step_failures_total", **STEP, reason=counted) == 1
    outcome = "timeout" if kind == "timeout" else "terminal"
    assert value("step_attempts_total", **STEP, outcome=outcome) == (kind != "interrupted")


@pytest.mark.parametrize(("path", "counted"), [("charge#2", 1), ("gather.0/charge", 1), ("sleep#2", 0), ("", 0)])
def test_code_that_does_not_match_the_record_at_a_step_is_a_failure_of_that_step(
    tell: MetricsSubscriber, value: Value, path: str, counted: int
) -> None:
    tell(events.ExecutionParked("order-7", "checkout", "code diverged", "recorded charge, now ship", 0, path))
    assert (value("step_failures_total", **STEP, reason="nondeterminism") or 0) == counted
    assert value("executions_parked_total", flow="checkout", reason="code diverged") == 1


@pytest.mark.pain(20)
@pytest.mark.parametrize("why", get_args(events.BackoffEnd))
def test_a_backoff_that_is_only_put_off_is_not_over(tell: MetricsSubscriber, value: Value, why: Any) -> None:
    tell(events.BackoffLeft(*WHERE, why, 3, 0))
    woken = value("retry_wakeups_total", source=why) or 0
    abandoned = value("backoffs_abandoned_total", reason=why) or 0
    assert (woken, abandoned) == (why in events.WOKEN_BY, why in ("cancel", "gather"))
    assert not value("retry_wakeups_total", source="other")
    assert not value("backoffs_abandoned_total", reason="other")


def test_being_interrupted_too_often_is_no_failed_attempt(
    tell: MetricsSubscriber, value: Value, gave_up: events.StepGaveUp
) -> None:
    tell(replace(gave_up, attempt=1, kind="interrupted", reason="interrupted"))
    assert value("step_failures_total", **STEP, reason="interrupted") == 1
    assert not value("step_attempts_total", **STEP, outcome="terminal")


def test_words_outside_the_closed_sets_count_as_other(
    tell: MetricsSubscriber, value: Value, gave_up: events.StepGaveUp
) -> None:
    tell(replace(gave_up, reason="a new reason"))
    tell(events.ExecutionParked("order-7", "checkout", "the moon", "", 0))
    tell(events.CommandDone("order-7", "checkout", "<script>", True, "", 0, "c1"))
    assert value("step_failures_total", **STEP, reason="other") == 1
    assert value("executions_parked_total", flow="checkout", reason="other") == 1
    assert value("commands_total", verb="other", outcome="applied") == 1


def test_names_without_end_do_not_grow_the_registry(
    sheet: Sheet,
    value: Value,
    gave_up: events.StepGaveUp,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sheet, "_names", Names(20))
    tell = MetricsSubscriber(sheet)

    def flood(names: range) -> int:
        for n in names:
            tell(events.ExecutionParked("x", f"flow{n}", "crashed", "", 0))
            tell(events.ExecutionEnded("x", f"flow{n}", "error", "", 1, 0))
            tell(events.StepCompleted("x", f"flow{n}", "s", "s", 1, 1, 0))
            tell(replace(gave_up, flow=f"flow{n}", step="s"))
        return len(samples(sheet))

    assert flood(range(30)) == flood(range(30, 300))
    assert value("executions_parked_total", flow="flow7", reason="crashed") == 1
    assert value("executions_parked_total", flow="other", reason="crashed") == 280
    assert value("step_attempts_total", flow="other", step="other", outcome="ok") == 280


def test_steps_that_are_too_many_count_for_their_flow_all_the_same(
    sheet: Sheet, value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheet, "_names", Names(2))
    tell = MetricsSubscriber(sheet)
    for n in range(9):
        tell(events.StepCompleted("x", "f", f"s{n}", f"s{n}", 1, 1, 0))
    tell(events.StepCompleted("x", "g", "s", "s", 1, 1, 0))
    assert value("step_attempts_total", flow="f", step="s1", outcome="ok") == 1
    assert value("step_attempts_total", flow="other", step="other", outcome="ok") == 8
    assert value("step_queue_seconds_count", flow="f") == 9
    assert value("step_queue_seconds_count", flow="g") == 1


def test_what_is_not_here_is_shown_as_other_beside_a_flow_of_that_name() -> None:
    sheet = Sheet.in_memory(flows={"other"})
    tell = MetricsSubscriber(sheet, {"other": ["charge"]})
    tell(events.StepCompleted("x", "other", "charge", "charge", 1, 1, 0))
    tell(events.StepCompleted("x", "elsewhere", "charge", "charge", 1, 1, 0))
    assert set(sheet.spreads_of(STEP_DURATION)) == {("other", "charge"), ("other", "other")}


def test_an_event_of_a_later_version_is_ignored(tell: MetricsSubscriber) -> None:
    tell(object())  # type: ignore[arg-type]


def test_a_completed_step_is_counted_in_few_calls(tell: MetricsSubscriber) -> None:
    event = events.StepCompleted(*WHERE, 1, 120, 0)
    tell(event)
    calls = 0

    def look(_frame: object, kind: str, _: object) -> None:
        nonlocal calls
        calls += kind == "call"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        tell(event)
    finally:
        sys.setprofile(before)
    assert 4 < calls <= 7, "each costs some 0.2 us, at thousands of steps a second"
