"""Steps in processes of their own, in real workers: deaths, timeouts, drains, and what is left when a worker dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from system.support.processes import lives
from system.support.stage import HANG_SECONDS, NEVER_ENDING, SUPPORT, Stage, WorkerProcess

from stepwell import ExecutionFailed

ISOLATED = SUPPORT / "isolated.py"


def worker_of(stage: Stage, *options: str) -> WorkerProcess:
    return stage.worker(*options, flows=ISOLATED).ready()


def is_reaped(pid: int) -> bool:
    """Whether there is no such process, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.pain(36)
def test_a_killed_step_process_is_a_failed_attempt_of_its_step_alone(stage: Stage) -> None:
    worker_of(stage)
    with stage.client() as client:
        ids = [client.start("one_apart", {"gate": "gate"}, f"A{number}") for number in range(2)]
        for each in ids:
            stage.ran(each, "held_apart")
        victim = stage.journal.runs("A0", "held_apart")[0]
        os.kill(victim.pid, signal.SIGKILL)
        stage.ran("A0", "held_apart", times=2)
        assert is_reaped(victim.pid)
        stage.open("gate")
        for each in ids:
            assert client.result(each, timeout=HANG_SECONDS)[1] == "after!"
        assert stage.journal.attempts("A0", "held_apart") == [1, 2]
        assert stage.journal.attempts("A1", "held_apart") == [1]
        assert len({run.key for run in stage.journal.runs("A0", "held_apart")}) == 1
        assert "killed by signal 9 (SIGKILL; out of memory?)" in json.dumps(client.describe("A0"))


def test_a_step_that_kills_its_process_ends_in_an_error_that_names_it(stage: Stage) -> None:
    worker_of(stage, "--processes", "2")
    with stage.client() as client:
        killers = [client.start("killing", {}, f"K{number}") for number in range(3)]
        innocents = [client.start("innocent", {}, f"I{number}") for number in range(50)]
        for each in killers:
            with pytest.raises(ExecutionFailed) as failed:
                client.result(each, timeout=HANG_SECONDS)
            said = f"step killer of execution {each}: its process ended with exit code 137"
            assert failed.value.error["message"] == said
            assert failed.value.error["failed_step"]["path"] == "killer"
            assert stage.journal.attempts(each, "killer") == [1, 2, 3]
        for each in innocents:
            assert client.result(each, timeout=HANG_SECONDS) == "well!"
            assert stage.journal.attempts(each, "quick") == [1]
    assert all(is_reaped(run.pid) for run in stage.journal.runs(path="killer"))


@pytest.mark.pain(52)
def test_a_timeout_kills_the_body_and_its_child_before_the_next_attempt(stage: Stage) -> None:
    worker_of(stage)
    with stage.client() as client:
        assert client.result(client.start("late", {}, "L1"), timeout=HANG_SECONDS) is False
    *late, _ = runs = stage.journal.runs("L1", "overtime")
    assert late, "one at least was too late"
    assert [run.attempt for run in runs] == sorted({run.attempt for run in runs})
    assert all(is_reaped(run.pid) for run in late)


def test_a_drain_lets_a_step_process_finish(stage: Stage) -> None:
    worker = worker_of(stage, "--grace", NEVER_ENDING)
    with stage.client() as client:
        client.start("apart", {"gate": "gate"}, "D1")
        stage.ran("D1", "gather.0/held_apart")
        stage.ran("D1", "gather.1/held_apart_async")
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining")
        stage.open("gate")
        assert worker.finish() == 0
        worker_of(stage)
        pids = client.result("D1", timeout=HANG_SECONDS)
    assert [run.attempt for run in stage.journal.runs("D1")] == [1, 1]
    assert len(set(pids)) == 2
    assert all(is_reaped(pid) for pid in pids)


def test_at_the_end_of_the_grace_a_step_process_is_killed_and_nobody_is_billed(stage: Stage) -> None:
    worker = worker_of(stage, "--grace", "0.2")
    with stage.client() as client:
        client.start("one_apart", {"gate": "gate"}, "G1")
        stage.ran("G1", "held_apart")
        worker.signal(signal.SIGTERM)
        worker.finish()
        first = stage.journal.runs("G1", "held_apart")[0]
        stage.eventually(lambda: not lives(first.pid), "the step process has ended")
        stage.open("gate")
        worker_of(stage)
        client.result("G1", timeout=HANG_SECONDS)
    assert stage.journal.attempts("G1", "held_apart") == [1, 1]
    assert len({run.key for run in stage.journal.runs("G1", "held_apart")}) == 1


@pytest.mark.parametrize("never_lets_go", [False, True])
def test_step_processes_die_with_their_worker(stage: Stage, never_lets_go: bool) -> None:
    worker = worker_of(stage)
    with stage.client() as client:
        client.start("stuck", {"never_lets_go": never_lets_go}, "S1")
        stage.ran("S1", "stubborn")
    pids = [stage.journal.runs("S1")[0].pid]
    if not never_lets_go:
        pids.append(int((stage.gates / "child").read_text()))
    worker.kill()
    for pid in pids:
        stage.eventually(lambda pid=pid: not lives(pid), f"process {pid} has ended")


def test_the_steps_of_a_program_s_main_file_run_in_processes(stage: Stage) -> None:
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "isolated_main.py"), str(stage.data)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
        env=stage.environment,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["priced"] == {"id": "A1", "cents": 10, "items": [{"kind": "gift"}, {"kind": "plain"}]}
    assert found["declined"] == "Declined after 1"
    assert found["key"].startswith("A1:")
    assert found["elsewhere"] is True


@pytest.mark.pain(8)
def test_a_step_that_kills_its_shard_is_set_apart_and_ends_by_its_budget(stage: Stage) -> None:
    worker_of(stage, "--shards", "1")
    with stage.client() as client:
        client.start("shard_killing", {}, "K1")
        innocents = [client.start("innocent", {}, f"I{number}") for number in range(200)]
        with pytest.raises(ExecutionFailed) as failed:
            client.result("K1", timeout=HANG_SECONDS)
        for each in innocents:
            assert client.result(each, timeout=HANG_SECONDS) == "well!"
    said = "step shard_killer of execution K1: its process ended with exit code 137"
    assert failed.value.error["message"] == said
    runs = stage.journal.runs("K1", "shard_killer")
    assert [run.attempt for run in runs] == [1, 1, 2, 3]  # the first one took the shard along: it costs no attempt
    assert len({run.pid for run in runs}) == 4
    assert len({run.key for run in runs}) == 1
