"""What a shard's threads observe becomes the metrics that docs/metrics.md says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from stepwell.actors import store_events as seen
from stepwell.metrics import instruments as i
from stepwell.metrics.shard import COUNTS_SECONDS_MAX, Now, ShardMetrics
from stepwell.metrics.sheet import Sheet
from stepwell.store.census import Lying
from stepwell.store.replies import Committed, Conflict, Fenced, Loaded, Reply
from stepwell.store.requests import Commit, Forget, Load, Restore
from stepwell.worker.observing import ELSEWHERE, count_observed

Value = Callable[..., float | None]


@pytest.fixture
def counts(sheet: Sheet) -> ShardMetrics:
    return ShardMetrics(sheet)


def a_commit() -> Commit:
    return Commit(0, "e1", "lease", 1, 2, "c1", 0, [], "running", "running", "keep")


def test_only_writes_of_rows_are_commits(counts: ShardMetrics, value: Value) -> None:
    restore = Restore(0, "e1", "lease", 3, "c2", 0, "running", "0", [], "checkout", (0, ""))
    sent: list[tuple[object, Reply]] = [
        (a_commit(), Committed(False)),
        (a_commit(), Committed(False)),
        (a_commit(), Committed(True)),
        (a_commit(), Fenced("")),
        (a_commit(), Conflict(3, "c")),
        (restore, Committed(False)),
        (restore, Fenced("")),
        (Forget(0, "lease", []), Fenced("")),
        (Load("e1"), Loaded({})),
    ]
    counts.batch_written([request for request, _ in sent], [reply for _, reply in sent], 0.004)
    found = {reply: value("commits_total", reply=reply) for reply in ("ok", "dup", "fenced", "conflict", "refused")}
    assert found == {"ok": 3, "dup": 1, "fenced": 2, "conflict": 1, "refused": 0}
    assert value("fenced_commits_total") == 2
    assert value("duplicates_suppressed_total", kind="commit") == 1
    assert value("commit_batch_size_sum") == 9
    assert value("commit_seconds_sum") == pytest.approx(0.004)


def test_lost_spans_are_counted_by_why(counts: ShardMetrics, value: Value) -> None:
    counts.spans_lost("queue_full", 1)
    counts.spans_lost("queue_full", 6)
    counts.spans_lost("export_failed", 512)
    found = {why: value("spans_lost_total", reason=why) for why in ("queue_full", "export_failed", "shutdown")}
    assert found == {"queue_full": 7, "export_failed": 512, "shutdown": None}


OBSERVED: list[tuple[seen.StoreEvent, str, dict[str, str], float]] = [
    (seen.StoreTrouble("mirror", "timeout", "no answer"), "redis_errors_total", {"kind": "timeout"}, 1),
    (seen.StoreTrouble("leases", "a new one", "odd"), "redis_errors_total", {"kind": "other"}, 1),
    (seen.NotSafeYet(), "not_safe_total", {}, 1),
    (seen.Healed("e1"), "healed_executions_total", {}, 1),
    (seen.TailLost(3), "tails_lost_total", {}, 1),
    (seen.RowDiverged("e1"), "mirror_divergence_total", {}, 1),
    (seen.RowMissing("e1"), "rows_missing_total", {}, 1),
    (seen.SweepFound(2, 1), "sweep_found_total", {"what": "entries"}, 2),
    (seen.SweepFound(2, 1), "sweep_found_total", {"what": "executions"}, 1),
    (seen.ExecutionsCounted({"waiting": 71}, {"timed": 4}), "executions", {"status": "waiting"}, 71),
    (seen.ExecutionsCounted({"waiting": 71}, {"timed": 4}), "executions_waiting", {"kind": "timed"}, 4),
    (seen.DeadLettered("malformed", "no type"), "dead_letters_total", {"reason": "malformed"}, 1),
    (seen.DeadLettered("something new", ""), "dead_letters_total", {"reason": "other"}, 1),
    (seen.LeftAlone("row"), "left_alone_total", {"kind": "row"}, 1),
    (seen.IngressTaken("start", 5), "ingress_total", {"verb": "start"}, 5),
    (
        seen.StepOverran("e1", "f", "s", "s#2", 1, "k", 5.0, 1.0),
        "step_overruns_total",
        {"flow": "f", "step": "s"},
        1,
    ),
    (seen.SuspectOpened("execution", "e1", 1, "exit"), "suspects_opened_total", {"kind": "execution"}, 1),
    (seen.ActorFailed("e1", "", True), "actor_restarts_total", {"actor": "execution", "reason": "parked"}, 1),
    (seen.ActorFailed("e1", "", False), "actor_restarts_total", {"actor": "execution", "reason": "reloaded"}, 1),
    (seen.PartitionGained(3, "boxed"), "recoveries_total", {"cause": "boxed"}, 1),
    (seen.PartitionRecovered(3, 0.5), "recovery_seconds_sum", {}, 0.5),
    (seen.DuplicateSuppressed("start", "e1"), "duplicates_suppressed_total", {"kind": "start"}, 1),
    (seen.LyingCounted(Lying(entries=7), 2.5), "inbox_length", {}, 7),
    (seen.LyingCounted(Lying(entries=7), 2.5), "inbox_lag_seconds", {}, 2.5),
    (seen.StartsWait({"checkout": 7.5}), "executions_queued_oldest_seconds", {"flow": "checkout"}, 7.5),
    (seen.LyingCounted(Lying(ingress=8), 0), "ingress_length", {}, 8),
    (seen.LyingCounted(Lying(letters=9), 0), "dead_letters", {}, 9),
    (seen.LyingCounted(Lying(suspects=2), 0), "suspects", {}, 2),
    (seen.BackoffsCounted({"checkout": (2, 5000)}), "executions_backing_off", {"flow": "checkout"}, 2),
    (
        seen.BackoffsCounted({"checkout": (2, 5000)}),
        "retry_next_due_timestamp_seconds",
        {"flow": "checkout"},
        5,
    ),
]


@pytest.mark.parametrize(("event", "name", "labels", "expected"), OBSERVED)
def test_what_is_observed_is_counted(
    counts: ShardMetrics, value: Value, event: seen.StoreEvent, name: str, labels: dict[str, str], expected: float
) -> None:
    count_observed(counts, event)
    assert value(name, **labels) == expected


def test_each_kind_of_observation_has_its_place(counts: ShardMetrics) -> None:
    told = {type(event) for event, *_ in OBSERVED}
    below = {seen.BatchWritten, seen.GuaranteeSeen}
    assert told | below | set(ELSEWHERE) == set(seen.STORE_EVENTS)


def test_a_partition_that_was_left_clean_is_no_recovery(counts: ShardMetrics, value: Value) -> None:
    count_observed(counts, seen.PartitionGained(3, ""))
    assert not any(value("recoveries_total", cause=cause) for cause in ("", "boxed", "dead", "lapsed", "other"))


@pytest.mark.pain(20)
def test_flows_that_back_off_no_longer_go_to_zero_and_have_no_due_time(counts: ShardMetrics, value: Value) -> None:
    counts.backing_off({"checkout": (2, 5000), "billing": (1, 9000)})
    counts.backing_off({"billing": (3, 8000)})
    assert value("executions_backing_off", flow="checkout") == 0
    assert value("retry_next_due_timestamp_seconds", flow="checkout") is None
    assert value("executions_backing_off", flow="billing") == 3
    assert value("retry_next_due_timestamp_seconds", flow="billing") == 8
    counts.backing_off({})
    counts.backing_off({})
    assert value("executions_backing_off", flow="billing") == 0
    assert value("retry_next_due_timestamp_seconds", flow="billing") is None


def test_flows_that_share_a_series_are_added_up(
    counts: ShardMetrics, value: Value, monkeypatch: pytest.MonkeyPatch, sheet: Sheet
) -> None:
    for number in range(i.PAIRS_MAX):
        sheet.level(i.EXECUTIONS_BACKING_OFF, f"f{number}")
        sheet.level(i.RETRY_NEXT_DUE, f"f{number}")
    counts.backing_off({"more": (2, 9000), "still more": (3, 4000)})
    assert value("executions_backing_off", flow="other") == 5
    assert value("retry_next_due_timestamp_seconds", flow="other") == 4
    counts.backing_off({"more": (1, 9000)})
    assert value("executions_backing_off", flow="other") == 1
    assert value("retry_next_due_timestamp_seconds", flow="other") == 9


def test_the_moment_is_asked_for_at_each_refresh(counts: ShardMetrics, value: Value) -> None:
    counts.refresh()
    moments = [
        Now({"loop": 3, "thread": 2, "process": 1}, 1, 6, 2, 12, 64, 3.5, 5, {"dispatcher": 8, "mirror": 9}),
        Now({"loop": 0, "thread": 0, "process": 0}, 0, 0, 0, 0, 0, 0, 0, {"dispatcher": 0, "mirror": 0}),
    ]
    counts.limits({"loop": 1000, "thread": 16, "process": 4}, 500, 64)
    counts.watch(lambda: moments.pop(0))
    counts.refresh()
    shown: dict[str, Any] = {
        "steps_running": {"place": "thread"},
        "quarantined_steps": {},
        "quarantined_steps_waiting": {},
        "abandoned_threads": {},
        "executions_in_memory": {"shard": "0"},
        "leases_held": {"shard": "0"},
        "counts_age_seconds": {},
        "actors_ready": {"shard": "0"},
        "mailbox_messages": {"shard": "0", "actor": "mirror"},
    }
    assert [value(name, **labels) for name, labels in shown.items()] == [2, 1, 6, 2, 12, 64, 3.5, 5, 9]
    counts.refresh()
    assert [value(name, **labels) for name, labels in shown.items()] == [0] * 9
    assert value("steps_limit", place="process") == 4
    assert value("executions_running_limit") == 500
    assert value("partitions") == 64


@pytest.mark.pain(20)
def test_what_could_not_be_counted_for_long_is_shown_no_more_until_it_is(counts: ShardMetrics, value: Value) -> None:
    ago = [0.0]
    counts.watch(lambda: Now({"loop": 3}, 0, 0, 0, 12, 64, ago[0], 0, {}))

    def shown() -> list[float | None]:
        counts.refresh()
        return [
            value("executions", status="waiting"),
            value("executions_waiting", kind="timed"),
            value("executions_backing_off", flow="checkout"),
            value("retry_next_due_timestamp_seconds", flow="checkout"),
            value("inbox_length"),
            value("inbox_lag_seconds"),
            value("dead_letters"),
        ]

    def count() -> None:
        counts.counted({"waiting": 5}, {"timed": 5, "untimed": 0})
        counts.backing_off({"checkout": (2, 5000)})
        counts.lying(Lying(entries=3, letters=4), 1.5)

    count()
    counted = [5, 5, 2, 5, 3, 1.5, 4]
    assert shown() == counted
    ago[0] = COUNTS_SECONDS_MAX
    assert shown() == counted
    ago[0] += 0.1
    assert shown() == [None] * 7
    assert value("steps_running", place="loop") == 3, "what it does itself it knows"
    assert value("counts_age_seconds") == ago[0]
    ago[0] = 0.0
    count()
    assert shown() == counted


def test_only_one_guarantee_is_in_force(counts: ShardMetrics, value: Value) -> None:
    labels = dict.fromkeys([label.name for label in i.GUARANTEE.labels], "x")
    count_observed(counts, seen.GuaranteeSeen(labels))
    count_observed(counts, seen.GuaranteeSeen({**labels, "kept": "no"}))
    assert value("guarantee_info", **labels) is None
    assert value("guarantee_info", **{**labels, "kept": "no"}) == 1
    assert not math.isnan(value("guarantee_info", **{**labels, "kept": "no"}) or 0)


def test_messages_to_actors_that_were_gone_are_counted(counts: ShardMetrics, value: Value) -> None:
    counts.undelivered()
    counts.undelivered()
    assert value("undelivered_total") == 2
