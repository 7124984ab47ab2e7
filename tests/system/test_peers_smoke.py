"""Other systems are measured by real processes, here of a made-up one; what was started is gone afterwards."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from system.support.processes import HANG_SECONDS

from benchmarks.peers.install import Environment, install
from benchmarks.peers.measure import QUICK, recover, take_turn
from benchmarks.peers.peer import Kind, Peer, Recovery, Server, Skip
from benchmarks.peers.processes import Process, tree
from benchmarks.peers.servers import serve

ROOT = Path(__file__).resolve().parents[2]
FAKE = Peer(
    name="fake",
    title="Fake",
    kind=Kind.FLOWS,
    server=Server.FILE,
    scripts=str(Path(__file__).parent / "fake_peer"),
    load=("{python}", "{here}/flows.py", "load"),
    loads=2,
    step="nothing",
    durability="none",
    settings="none",
    recovery=Recovery("none", worker=("{python}", "{here}/flows.py", "recover"), ready=1, self_starting=True),
)
BRIEF = dataclasses.replace(
    QUICK,
    throughput_seconds=0.01,
    latency_seconds=HANG_SECONDS,
    warm_up_seconds=0.0,
    recovery_flows=8,
    patience_seconds=HANG_SECONDS,
)


@pytest.fixture
def made(tmp_path: Path) -> Environment:
    return install(FAKE, tmp_path)


@pytest.mark.slow
def test_a_turn_measures_throughput_and_latency(made: Environment, tmp_path: Path) -> None:
    turn = take_turn(FAKE, made, tmp_path, BRIEF)
    assert turn.flows >= 20
    assert turn.steps_per_second > 0
    assert turn.latencies == BRIEF.latency_flows


@pytest.mark.slow
def test_a_worker_is_killed_and_started_again_until_all_flows_have_ended(made: Environment, tmp_path: Path) -> None:
    found = recover(FAKE, made, tmp_path, BRIEF)
    assert (found.unfinished, found.flows) == (0, 8)
    assert found.seconds is not None
    assert 20 <= found.steps_at_kill <= 40


@pytest.mark.slow
def test_a_load_that_ends_fails_the_turn_with_its_last_words(made: Environment, tmp_path: Path) -> None:
    broken = dataclasses.replace(FAKE, load=("{python}", "{here}/flows.py", "dance"))
    with pytest.raises(Skip, match="ended with code 1: no such role"):
        take_turn(broken, made, tmp_path, BRIEF)


@pytest.mark.slow
def test_a_process_ends_with_all_that_it_has_started(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    with Process([sys.executable, "-c", child + " start_new_session=True); time.sleep(600)"], tmp_path / "log") as one:
        eventually(lambda: len(tree(one.pid)) == 2, "its child runs")
        pids = tree(one.pid)
    assert not [pid for pid in pids if _lives(pid)]


@pytest.mark.slow
def test_a_quick_run_measures_writes_a_table_and_leaves_nothing(processes: Any, tmp_path: Path) -> None:
    # Both systems are ours, so that nothing has to be installed.
    command = [sys.executable, "-m", "benchmarks.peers", "stepwell-client", "--quick", "--out", tmp_path / "out"]
    run = processes.start(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)})
    said, told = run.communicate(timeout=4 * HANG_SECONDS)
    assert run.returncode == 0, told
    report = json.loads((tmp_path / "out/peers.json").read_text())
    measures = {row["measure"] for row in report["result"]["rows"]}
    assert {"stepwell: throughput", "stepwell-client: throughput", "stepwell: flows not finished"} <= measures
    assert "| Stepwell, by AsyncClient |" in said
    assert not list(tmp_path.glob("stepwell-peer-*"))


@pytest.mark.slow
def test_an_interrupted_run_ends_its_servers_and_workers(
    processes: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    command = [sys.executable, "-m", "benchmarks.peers", "stepwell", "--quick", "--out", tmp_path / "out"]
    run = processes.start(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)})
    eventually(lambda: len(tree(run.pid)) > 3, "server, worker and shards run")
    started = tree(run.pid)[1:]
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=HANG_SECONDS)
    assert run.returncode == 130
    eventually(lambda: not any(map(_lives, started)), "the end of what it had started")
    assert not list(tmp_path.glob("stepwell-peer-*"))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_postgres_gets_a_folder_of_its_own_and_changes_no_other(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "turn").mkdir(parents=True)
    above.chmod(0o1777)
    # Without Postgres, or where its user can't come here, there is no server; the folder above stays as it was.
    with suppress(Skip), serve(dataclasses.replace(FAKE, server=Server.POSTGRES), tmp_path, above / "turn"):
        assert above.stat().st_mode & 0o7777 == 0o1777
    assert above.stat().st_mode & 0o7777 == 0o1777
