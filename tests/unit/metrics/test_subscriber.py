"""Events become the metrics that docs/metrics.md says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from stepwell.core import events
from stepwell.metrics.folding import Names
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.shard import ShardGauges
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.store.replies import Committed, Conflict, Fenced, Loaded

Value = Callable[..., float | None]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
STEP = {"flow": "checkout", "step": "charge"}
WHERE = ("order-7", "checkout", "charge", "charge#2")


@pytest.fixture
def tell(sheet: Sheet) -> MetricsSubscriber:
    return MetricsSubscriber(sheet)


def samples(sheet: Sheet) -> list[tuple[str, dict[str, str], float]]:
    totals = Totals()
    totals.attach(0, sheet.source)
    return list(samples_of(totals.take()))


def test_every_kind_of_event_moves_a_metric(one_of_each: list[events.Event]) -> None:
    assert {type(event) for event in one_of_each} == set(get_args(events.Event))
    for event in one_of_each:
        if isinstance(event, events.WaitBegan | events.WaitEnded | events.ExecutionResumed | events.StepCancelled):
            continue
        sheet = Sheet.in_memory()
        tell = MetricsSubscriber(sheet)
        if isinstance(event, events.BackoffLeft):
            tell(events.BackoffResumed(*WHERE, 1, 3, 0))
        before = samples(sheet)
        tell(event)
        assert samples(sheet) != before, event


def test_the_page_on_metrics_has_a_row_for_each_event() -> None:
    page = DOCS.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE))
    assert rows == {kind.__name__ for kind in get_args(events.Event)}


def test_five_failed_attempts_are_four_backoffs_and_one_terminal_failure(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed, gave_up: events.StepGaveUp
) -> None:
    for attempt in range(1, 5):
        tell(replace(failed, attempt=attempt, delay_ms=200 * 2**attempt))
        assert value("executions_backing_off", flow="checkout") == 1
        tell(events.BackoffLeft(*WHERE, "timer", 2, 0))
        tell(events.RetryStarted(*WHERE, attempt + 1, 2, 0))
    tell(gave_up)
    assert value("step_attempts_total", **STEP, outcome="retryable") == 4
    assert value("step_attempts_total", **STEP, outcome="terminal") == 1
    assert value("step_attempts_total", **STEP, outcome="ok") == 0
    assert value("step_retries_scheduled_total", **STEP, reason="error") == 4
    assert value("retry_backoff_seconds_count", **STEP) == 4
    assert value("retry_backoff_seconds_sum", **STEP) == pytest.approx(0.4 + 0.8 + 1.6 + 3.2)
    assert value("retry_lateness_seconds_count") == 4
    assert value("step_failures_total", **STEP, reason="budget") == 1
    assert value("executions_backing_off", flow="checkout") == 0
    assert value("retry_wakeups_total", source="timer") == 4


def test_attempts_whose_processes_died_are_counted_beside(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed, gave_up: events.StepGaveUp
) -> None:
    tell(failed)
    tell(replace(failed, attempt=2, error_type="StepCrashed"))
    tell(replace(gave_up, attempt=3, error_type="StepCrashed"))
    assert value("step_crashes_total", **STEP) == 2
    assert value("step_attempts_total", **STEP, outcome="retryable") == 2


def test_a_backoff_told_again_by_a_rebuilt_execution_counts_once(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed
) -> None:
    tell(failed)
    tell(events.BackoffResumed(*WHERE, 700, 3, 0))
    assert value("executions_backing_off", flow="checkout") == 1
    tell(events.BackoffLeft(*WHERE, "manual", 3, 0))
    tell(events.BackoffLeft(*WHERE, "manual", 3, 0))
    assert value("executions_backing_off", flow="checkout") == 0


def test_steps_of_one_execution_back_off_apart(
    tell: MetricsSubscriber, value: Value, failed: events.AttemptFailed
) -> None:
    tell(failed)
    tell(replace(failed, path="ship"))
    tell(replace(failed, execution_id="order-8"))
    assert value("executions_backing_off", flow="checkout") == 3


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
    tell(events.BackoffLeft(*WHERE, "nobody knows", 3, 0))
    assert value("step_failures_total", **STEP, reason="other") == 1
    assert value("executions_parked_total", flow="checkout", reason="other") == 1
    assert value("commands_total", verb="other", outcome="applied") == 1
    assert value("retry_wakeups_total", source="other") == 1


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


def test_an_event_of_a_later_version_is_ignored(tell: MetricsSubscriber) -> None:
    tell(object())  # type: ignore[arg-type]


def test_replies_of_a_batch_are_counted_by_kind(sheet: Sheet, value: Value) -> None:
    gauges = ShardGauges(sheet)
    replies = [Committed(False), Committed(False), Committed(True), Fenced(""), Conflict(3, "c"), Loaded({})]
    gauges.batch_written(replies, 0.004)
    found = {reply: value("commits_total", reply=reply) for reply in ("ok", "dup", "fenced", "conflict", "refused")}
    assert found == {"ok": 2, "dup": 1, "fenced": 1, "conflict": 1, "refused": 0}
    assert value("commit_batch_size_sum") == 6
    assert value("commit_seconds_sum") == pytest.approx(0.004)


def test_what_the_shard_observes_is_counted(sheet: Sheet, value: Value) -> None:
    gauges = ShardGauges(sheet)
    gauges.watch_memory(lambda: 12)
    gauges.swept(2, 1)
    gauges.counted({"queued": 3, "waiting": 70})
    gauges.counted({"queued": 0, "waiting": 71})
    gauges.dead_lettered("malformed")
    gauges.dead_lettered("something new")
    for count in (
        gauges.healed, gauges.diverged, gauges.fenced, gauges.store_trouble, gauges.not_safe, gauges.tail_lost,
        gauges.undelivered,
    ):  # fmt: skip
        count()
    gauges.actor_failed(parked=True)
    gauges.suspect_opened("execution")
    gauges.refresh()
    assert value("executions_in_memory", shard="0") == 12
    assert (value("executions", status="queued"), value("executions", status="waiting")) == (0, 71)
    assert (value("sweep_found_total", what="entries"), value("sweep_found_total", what="executions")) == (2, 1)
    assert value("dead_letters_total", reason="malformed") == 1
    assert value("dead_letters_total", reason="other") == 1
    singles = ("healed_executions", "mirror_divergence", "fenced_commits", "not_safe", "tails_lost", "undelivered")
    assert [value(f"{name}_total") for name in singles] == [1] * 6
    assert value("redis_errors_total", kind="unreachable") == 1
    assert value("actor_restarts_total", actor="execution", reason="parked") == 1
    assert value("suspects_opened_total", kind="execution") == 1
