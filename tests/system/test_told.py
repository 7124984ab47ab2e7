"""Who is told when a step fails: the log, the row, the metrics, the lists and the events say one thing."""

from __future__ import annotations

import json
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from system.support.stage import HANG_SECONDS, Stage, WorkerProcess

from stepwell.metrics.formatting import utc_ms

ATTEMPTS = 5  # of `hopeless`


def logged(worker: WorkerProcess) -> list[dict[str, Any]]:
    """Its log lines, as JSON."""
    *whole, _ = worker.err.split("\n")  # the last one may be under way
    return [json.loads(line) for line in whole if line.startswith("{")]


def lines(worker: WorkerProcess, event: str) -> list[dict[str, Any]]:
    """Those of that event."""
    return [line for line in logged(worker) if line.get("event") == event]


@pytest.mark.pain(20)
def test_everybody_is_told_once_when_a_budget_is_used_up(stage: Stage) -> None:
    worker = stage.worker("--log-json").ready()
    stage.command("start", "failing_later", "--id", "f1", "--wait", *stage.where)
    where = {"flow": "failing_later", "step": "hopeless"}
    worker.counts("stepwell_executions_total", 1, flow="failing_later", status="error")
    assert worker.metric("stepwell_step_failures_total", **where, reason="budget") == 1
    stage.eventually(lambda: lines(worker, "ExecutionEnded"), "the end is logged")
    said = logged(worker)
    assert {line["shard"].rpartition("/")[0] for line in said if "shard" in line} <= {
        line["worker"] for line in said if "worker" in line
    }
    [gave_up] = lines(worker, "StepGaveUp")
    [ended] = lines(worker, "ExecutionEnded")
    assert (gave_up["level"], gave_up["execution"], gave_up["attempt"]) == ("ERROR", "f1", ATTEMPTS)
    assert gave_up["key"] == stage.journal.runs("f1", "hopeless")[0].key
    assert (ended["level"], ended["status"], ended["error"]) == ("ERROR", "error", "ValueError: always")
    listed = json.loads(stage.command("list", "--status", "error", "--json", *stage.where).stdout)["executions"]
    assert [each["id"] for each in listed] == ["f1"]
    shown = json.loads(stage.command("show", "f1", "--json", *stage.where).stdout)
    assert shown["error"]["failed_step"]["path"] == "hopeless"
    told = stage.command("tail", "f1", "--json", *stage.where).stdout.splitlines()
    assert [each["event"] for each in map(json.loads, told)].count("StepGaveUp") == 1
    assert json.loads(told[-1])["event"] == "ExecutionEnded"


@pytest.mark.pain(27)
def test_the_logged_due_time_is_the_row_s_and_the_real_one(stage: Stage) -> None:
    worker = stage.worker("--log-json", "--verbose").ready()
    stage.command("start", "failing_later", "--id", "f1", "--wait", *stage.where)
    stage.eventually(lambda: lines(worker, "ExecutionEnded"), "the end is logged")
    failed = lines(worker, "AttemptFailed")
    begun = lines(worker, "RetryStarted")
    shown = json.loads(stage.command("show", "f1", "--json", *stage.where).stdout)
    attempts = shown["steps"][-1]["attempts"]
    assert len(failed) == len(begun) == ATTEMPTS - 1

    assert [line["due"] for line in failed] == [utc_ms(each["due_at"]) for each in attempts[:-1]]
    assert [line["delay_s"] for line in failed] == [
        (each["due_at"] - each["ended_at"]) / 1000 for each in attempts[:-1]
    ]
    # Not early, by the clock of the bodies themselves, which no rounding of ours has touched, and no server's time.
    runs = stage.journal.runs("f1", "hopeless")
    for line, (earlier, later) in zip(failed, pairwise(runs), strict=True):
        assert later.at - earlier.at >= line["delay_s"]
    late = [max(0, later["started_at"] - earlier["due_at"]) for earlier, later in pairwise(attempts)]
    assert [round(line["late_s"] * 1000) for line in begun] == late
    worker.counts("stepwell_retry_lateness_seconds_count", len(late))
    assert worker.metric("stepwell_retry_lateness_seconds_sum") == pytest.approx(sum(late) / 1000)


def test_tail_tells_each_transition_once_over_a_killed_shard_and_a_restart(
    stage: Stage, processes: Any, tmp_path: Path
) -> None:
    worker = stage.worker().ready()
    with stage.client() as client:
        client.start("persistent", {"gate": "go"}, "p1")
        stage.ran("p1", "third_time_held", times=3)
        told = tmp_path / "told"
        with told.open("w") as out:
            command = [*stage.program, "tail", "p1", "--json", *stage.where]
            tail = processes.start(command, stdout=out, env=stage.environment)
        stage.eventually(lambda: told.read_text().count("AttemptFailed") == 2, "what was before is told")
        worker.signal(signal.SIGKILL)  # with its shard
        worker.finish()
        second = stage.worker().ready()
        stage.ran("p1", "third_time_held", times=4)
        second.kill_shard()
        stage.ran("p1", "third_time_held", times=5)
        stage.open("go")
        client.result("p1", timeout=HANG_SECONDS)
        assert tail.wait(HANG_SECONDS) == 0
        kept = list(client.events("p1", follow=False))
    found = [json.loads(line) for line in told.read_text().splitlines()]
    assert [each["entry"] for each in found] == [each.entry for each in kept]
    kinds = [each["event"] for each in found]
    assert (kinds.count("AttemptFailed"), kinds.count("StepCompleted"), kinds[-1]) == (4, 1, "ExecutionEnded")
    assert kinds.count("StepInterrupted") == 2
    assert [each["attempt"] for each in found if each["event"] == "AttemptFailed"] == [1, 2, 3, 4]


CHATTY = """
from stepwell import current_step, flow, step

@step
async def chatty(lines: int) -> int:
    for number in range(lines):
        current_step().logger.info("line %d %s", number, "x" * 200)
    return lines

@flow
async def chats(lines: int) -> int:
    return await chatty(lines)
"""


def test_a_log_that_nobody_reads_holds_up_no_step_and_is_whole_once_it_is_read(
    stage: Stage, processes: Any, tmp_path: Path
) -> None:
    flows, executions, lines_each = tmp_path / "chatty.py", 20, 50
    flows.write_text(CHATTY)
    command = [*stage.program, "run", str(flows), *stage.where, "--metrics-port", "0", "--shards", "1"]
    with (tmp_path / "out").open("w") as out:
        process = processes.start(command, stdout=out, env=stage.environment)
    with stage.client() as client:
        ids = [client.start("chats", {"lines": lines_each}, f"c{n}", unchecked=True) for n in range(executions)]
        assert [client.result(each, timeout=HANG_SECONDS) for each in ids] == [lines_each] * executions
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.extend(process.stderr), daemon=True)
    reader.start()
    stage.eventually(lambda: sum("line " in line for line in read) == executions * lines_each, "all lines are there")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_SECONDS) == 0
    reader.join(HANG_SECONDS)
