"""One worker, several processes: each may die, and none outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from system.support.processes import lives
from system.support.stage import HANG_SECONDS, NEVER_ENDING, Stage, WorkerProcess

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux shows what others have open")
IMPORT_CRASHES = """
import os
from stepwell import flow

if os.path.exists(os.path.join(os.environ["STEPWELL_TEST_GATES"], "crash")):
    os._exit(3)

@flow
async def calm() -> int:
    return 1
"""

HEADSTRONG = """
import os, signal, subprocess, sys
from pathlib import Path
from stepwell import flow, step

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *_: sys.exit(9))

@step
def program() -> int:
    with subprocess.Popen(["sleep", "86000"]) as process:
        Path(os.environ["STEPWELL_TEST_GATES"], "program").write_text(str(process.pid))
        return process.wait()

@step
async def quick() -> int:
    return 1

@flow
async def programs() -> int:
    return await program()

@flow
async def calm() -> int:
    return await quick()
"""


MANY = 24  # executions, so many that each of two shards gets some


def title(pid: int) -> str:
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return shown.stdout


def gone(stage: Stage, pids: set[int]) -> None:
    stage.eventually(lambda: not any(lives(pid) for pid in pids), f"the processes {pids} are gone")


def two_shards(stage: Stage, *options: str) -> WorkerProcess:
    worker = stage.worker("--shards", "2", *options).ready()
    stage.eventually(stage.settled, "both own their shares")
    return worker


def shares(stage: Stage) -> set[int]:
    """Numbers of the shards that hold leases."""
    return {int(name.rpartition("/")[2]) for name in stage.holders().values()}


def test_who_is_who_is_shown_by_ps(stage: Stage) -> None:
    worker = two_shards(stage, "--worker-id", "rack-7")
    assert title(worker.pid).strip() == "stepwell: worker rack-7"
    assert [title(worker.shards[index]).strip() for index in (0, 1)] == [
        "stepwell: shard rack-7/0",
        "stepwell: shard rack-7/1",
    ]
    assert "2 shards" in worker.out


@pytest.mark.pain(37)
@needs_proc
def test_a_shard_has_no_file_and_no_socket_of_its_parent(stage: Stage) -> None:
    def opened(pid: int) -> set[str]:
        links = []
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                links.append(os.readlink(link))
            except OSError:
                continue
        return {link for link in links if link.startswith(("socket:", "/")) and not link.startswith("/dev/")}

    worker = two_shards(stage)
    worker.page("metrics")
    said = {str(worker._err), str(worker._out)}
    parents = opened(worker.pid) - said
    assert any(link.startswith("socket:") for link in parents), "it serves metrics"
    assert any(link.endswith("users.lock") for link in parents), "it holds the embedded server"
    first, second = worker.shards.values()

    def shared(one: int, other: int) -> set[str]:
        """But for a shard's own sheet, which it and its parent have opened."""
        return {link for link in (opened(one) & opened(other)) - said if not link.endswith(".sheet")}

    # What was inherited stays shared; a file of the system that both read just now does not.
    for pid in (first, second):
        stage.eventually(lambda pid=pid: shared(worker.pid, pid) == set(), "it shares nothing with its parent")
        assert len([link for link in opened(pid) if link.endswith(".sheet")]) == 1
    sockets = lambda: {link for link in shared(first, second) if link.startswith("socket:")}  # noqa: E731
    stage.eventually(lambda: sockets() == set(), "they share no socket")


@pytest.mark.pain(7)
def test_a_shard_that_is_killed_comes_back_and_its_work_goes_on(stage: Stage) -> None:
    worker = two_shards(stage)
    before = worker.shards
    with stage.client() as client:
        ids = [client.start("holding", {"gate": "go"}, f"h{number}") for number in range(MANY)]
        for each in ids:
            stage.ran(each, "held")
        os.kill(before[0], signal.SIGKILL)
        lost = {run.execution for run in stage.journal.runs() if run.pid == before[0]}
        assert 0 < len(lost) < len(ids)
        for each in lost:
            stage.ran(each, "held", times=2)
        stage.eventually(lambda: worker.shards[0] != before[0], "another process runs that shard")
        stage.open("go")
        for each in ids:
            client.result(each, timeout=HANG_SECONDS)
        assert client.dead_letters() == []
        billed = {each for each in ids if client.describe(each)["steps"][0]["interruptions"]}
    assert billed == lost
    assert {run.pid for run in stage.journal.runs() if run.execution not in lost} == {before[1]}
    assert all(len({run.key for run in stage.journal.runs(each, "held")}) == 1 for each in ids)
    assert worker.shards[1] == before[1]
    assert worker.metric("stepwell_shard_restarts_total", cause="killed") == 1
    stage.eventually(lambda: worker.metric("stepwell_shards", state="running") == 2, "both run")
    stage.eventually(lambda: shares(stage) == {0, 1}, "it has its partitions again")
    stage.eventually(lambda: worker.page("healthz")[0] == 200, "it is well")


@pytest.mark.pain(42)
def test_totals_outlive_shards_and_series_do_not_grow(stage: Stage) -> None:
    worker = two_shards(stage)
    name = "stepwell_step_attempts_total"
    done = 0.0
    series: set[int] = set()
    with stage.client() as client:
        for round_ in range(3):
            for number in range(10):
                client.result(client.start("chain", {}, f"c{round_}-{number}"), timeout=HANG_SECONDS)
            done += 30
            # A result is known as soon as it is recorded, and counted right after that.
            stage.eventually(lambda done=done: worker.metric(name, outcome="ok") == done, "all are counted")
            series.add(worker.page("metrics")[1].count("\nstepwell_step_attempts_total{"))
            pid = worker.shards[round_ % 2]
            os.kill(pid, signal.SIGKILL)
            stage.eventually(lambda pid=pid: pid not in worker.shards.values(), "another has taken its place")
            assert worker.metric(name, outcome="ok") == done
    assert worker.metric("stepwell_shard_restarts_total") == 3
    assert len(series) == 1


def test_shards_die_with_their_parent(stage: Stage) -> None:
    worker = two_shards(stage)
    shards = set(worker.shards.values())
    with stage.client() as client:
        client.start("holding_sync", {"gate": "go"}, "h1")
        stage.ran("h1", "held_sync")
        worker.kill()
        gone(stage, shards)
        stage.open("go")
        stage.worker().ready()
        assert client.result("h1", timeout=HANG_SECONDS)[1] == "after!"


@pytest.mark.pain(9)
@pytest.mark.parametrize("killed", ["the parent", "the shard"])
def test_a_program_that_a_step_has_started_ends_with_its_worker(stage: Stage, tmp_path: Path, killed: str) -> None:
    """It would go on while the step runs again elsewhere."""
    flows = tmp_path / "headstrong.py"
    flows.write_text(HEADSTRONG)
    worker = stage.worker("--shards", "1", flows=flows).ready()
    said = stage.gates / "program"
    with stage.client() as client:
        client.start("programs", {}, "p1")
        stage.eventually(lambda: said.exists() and said.read_text(), "the program runs")
    program = int(said.read_text())
    shard = worker.shard
    if killed == "the parent":
        worker.kill()
    else:
        os.kill(shard, signal.SIGKILL)
    gone(stage, {program, shard})


@pytest.mark.pain(35)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_handlers_that_a_module_with_flows_has_set_do_not_end_a_shard(
    stage: Stage, tmp_path: Path, number: signal.Signals
) -> None:
    flows = tmp_path / "headstrong.py"
    flows.write_text(HEADSTRONG)
    worker = stage.worker(flows=flows).ready()
    os.kill(worker.shard, number)
    with stage.client() as client:
        assert client.result(client.start("calm", {}, "c1"), timeout=HANG_SECONDS) == 1
    worker.signal(number)
    assert worker.finish() == 0
    assert worker.err.count(" runs (process ") == 1


@pytest.mark.pain(35)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_drains_all_of_them(stage: Stage, number: signal.Signals) -> None:
    worker = two_shards(stage, "--grace", NEVER_ENDING)
    shards = worker.shards
    with stage.client() as client:
        ids = [client.start("holding", {"gate": "go"}, f"h{number}") for number in range(MANY)]
        for each in ids:
            stage.ran(each, "held")
        assert {run.pid for run in stage.journal.runs()} == set(shards.values())
        worker.signal(number)
        stage.eventually(lambda: worker.err.count("nothing new starts") == 2, "both drain")
        assert all(lives(pid) for pid in shards.values())
        stage.open("go")
        assert worker.finish() == 0
        gone(stage, set(shards.values()))
        assert "Traceback" not in worker.out + worker.err
        assert "worker stopped; all ended" in worker.err
        firsts = [client.describe(each)["steps"][0] for each in ids]
    assert [(step["status"], step["interruptions"]) for step in firsts] == [("completed", 0)] * len(ids)
    assert len(stage.journal.runs()) == len(ids)


@pytest.mark.pain(35)
def test_a_second_signal_ends_all_of_them_at_once(stage: Stage) -> None:
    worker = two_shards(stage, "--grace", NEVER_ENDING)
    shards = set(worker.shards.values())
    with stage.client() as client:
        client.start("holding_sync", {"gate": "go"}, "h1")
        stage.ran("h1", "held_sync")
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining, again to stop at once")
        worker.signal(signal.SIGTERM)
        assert worker.finish() == 128 + signal.SIGTERM
    gone(stage, shards)
    assert "Traceback" not in worker.out + worker.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_shard_does_not_end_by_signals_that_are_for_its_parent(stage: Stage, number: signal.Signals) -> None:
    worker = two_shards(stage)
    for pid in worker.shards.values():
        os.kill(pid, number)
    with stage.client() as client:
        for each in range(MANY):
            assert client.result(client.start("chain", {}, f"c{each}"), timeout=HANG_SECONDS) == 3
    assert {run.pid for run in stage.journal.runs()} == set(worker.shards.values())
    assert worker.metric("stepwell_shard_restarts_total") == 0


def test_a_worker_whose_shards_never_get_anywhere_gives_up_loudly(stage: Stage, tmp_path: Path) -> None:
    flows = tmp_path / "crashing.py"
    flows.write_text(IMPORT_CRASHES)
    stage.open("crash")
    worker = stage.worker(flows=flows)
    assert worker.finish() == 1
    assert worker.out == ""
    last = worker.err.strip().splitlines()[-1]
    assert (
        "CRITICAL the worker ends: shard 0 died 5 times in a row without having committed anything: exit code 3" in last
    )


def test_shards_that_begin_to_crash_end_the_worker_once_it_is_clear(stage: Stage, tmp_path: Path) -> None:
    flows = tmp_path / "crashing.py"
    flows.write_text(IMPORT_CRASHES)
    worker = stage.worker("--shards", "2", flows=flows).ready()
    stage.open("crash")
    os.kill(worker.shards[0], signal.SIGKILL)
    sibling = worker.shards[1]
    assert worker.finish() == 1
    gone(stage, {sibling})
    assert "exit code 3" in worker.err.strip().splitlines()[-1]


@pytest.mark.parametrize("as_json", [True, False])
def test_every_line_says_which_shard_it_is_from(stage: Stage, as_json: bool) -> None:
    worker = two_shards(stage, "--worker-id", "rack-7", *(["--log-json"] if as_json else []))
    with stage.client() as client:
        for number in range(8):
            client.start("failing", {}, f"f{number}")
        for number in range(8):
            stage.ran(f"f{number}", "hopeless", times=2)
        worker.signal(signal.SIGTERM)
        assert worker.finish() == 0
    lines = worker.err.splitlines()
    failed = [line for line in lines if "hopeless" in line]
    if as_json:
        assert {json.loads(line)["shard"] for line in failed} == {"rack-7/0", "rack-7/1"}
        assert all("time" in json.loads(line) for line in lines)
        assert json.loads(worker.out)["shards"] == 2
    else:
        assert {line.rpartition("shard=")[2] for line in failed} == {"rack-7/0", "rack-7/1"}
    assert "worker stopped" in lines[-1]


def test_readiness_says_which_shard_is_away(stage: Stage) -> None:
    worker = two_shards(stage)
    stage.eventually(lambda: worker.page("readyz") == (200, "ok\n"), "it is ready")
    os.kill(worker.shards[1], signal.SIGSTOP)
    try:
        with stage.server() as server:
            stage.eventually(lambda: shares(stage) == {0}, "the other has taken over")
            assert server.ping()
        # In whatever state: its parent kills who is silent for a minute, or who was stopped amid a turn.
        assert worker.metric("stepwell_shards") == 2, "a scrape does not wait for it"
        stage.eventually(lambda: worker.page("readyz")[0] == 200, "it is ready without it")
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker.shards[1], signal.SIGCONT)
    stage.eventually(lambda: shares(stage) == {0, 1}, "it is back")
