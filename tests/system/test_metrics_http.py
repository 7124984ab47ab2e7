"""What a worker shows over HTTP of attempts, retries and waits while they happen."""

from __future__ import annotations

import pytest
from system.support.stage import HANG_SECONDS, Stage

from stepwell import ExecutionFailed

PAUSE_MS = 600_000  # longer than the test may take; it is ended before


@pytest.mark.pain(20)
def test_retries_are_counted_timed_and_explained(stage: Stage) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        client.start("bumpy", {"failures": 3}, "b1")
        assert client.result("b1", timeout=HANG_SECONDS) == 4
        client.start("failing_later", {}, "f1")
        with pytest.raises(ExecutionFailed):
            client.result("f1", timeout=HANG_SECONDS)

    # Whoever waits for a result may hear of it before its shard does, and an end is what is told last.
    ended = {"flow": "failing_later", "status": "error"}
    worker.counts("stepwell_executions_total", 1, **ended)
    shaky = {"flow": "bumpy", "step": "shaky"}
    hopeless = {"flow": "failing_later", "step": "hopeless"}
    assert worker.metric("stepwell_step_attempts_total", **shaky, outcome="retryable") == 3
    assert worker.metric("stepwell_step_attempts_total", **shaky, outcome="ok") == 1
    assert worker.metric("stepwell_step_attempts_total", **hopeless, outcome="retryable") == 4
    assert worker.metric("stepwell_step_attempts_total", **hopeless, outcome="terminal") == 1
    assert worker.metric("stepwell_step_retries_scheduled_total", **shaky) == 3
    assert worker.metric("stepwell_step_retries_scheduled_total", **hopeless) == 4
    assert worker.metric("stepwell_retry_backoff_seconds_count", **shaky) == 3
    assert worker.metric("stepwell_retry_backoff_seconds_sum", **shaky) >= 0.05 + 0.1 + 0.2
    assert worker.metric("stepwell_retry_backoff_seconds_sum", **hopeless) >= 0.2 + 0.4 + 0.8 + 1.6
    assert worker.metric("stepwell_retry_lateness_seconds_count") == 7
    assert worker.metric("stepwell_retry_wakeups_total", source="timer") == 7
    assert worker.metric("stepwell_step_failures_total", **hopeless, reason="budget") == 1
    assert worker.metric("stepwell_step_failures_total", **shaky) == 0
    assert worker.metric("stepwell_executions_total", flow="bumpy", status="completed") == 1
    worker.counts("stepwell_executions_backing_off", 0)


def test_who_backs_off_now_is_shown_until_something_ends_it(stage: Stage) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        for number in range(3):
            client.start("rester", {}, f"r{number}")
        worker.counts("stepwell_executions_backing_off", 3)
        assert client.retry("r0").applied
        with pytest.raises(ExecutionFailed, match="come back later"):
            client.result("r0", timeout=HANG_SECONDS)
        assert client.cancel("r1").applied
        worker.counts("stepwell_executions_backing_off", 1)
    worker.counts("stepwell_retry_wakeups_total", 1, source="manual")
    worker.counts("stepwell_backoffs_abandoned_total", 1, reason="cancel")
    worker.counts("stepwell_commands_total", 1, verb="retry", outcome="applied")


def test_the_probes_answer_and_other_pages_do_not_exist(stage: Stage) -> None:
    worker = stage.worker().ready()
    assert worker.page("healthz") == (200, "ok\n")
    assert worker.page("readyz") == (200, "ok\n")
    assert worker.page("rows")[0] == 404


def test_a_worker_that_cannot_write_lives_and_is_not_ready(stage: Stage) -> None:
    worker = stage.worker().ready()
    with stage.server() as server:
        server.client_pause(PAUSE_MS, all=False)
        stage.eventually(lambda: worker.page("readyz")[0] == 503, "no partition is owned any more")
        assert worker.page("healthz") == (200, "ok\n")
        server.client_unpause()
    stage.eventually(lambda: worker.page("readyz")[0] == 200, "it owns partitions again")
