"""The demo as a user runs it: it holds, it says what broke where something did, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LAST_LINE = re.compile(r"demo: 200 steps, [0-9]+ attempts, 1 key per step, 1 side effect per step")
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

# Idempotency keys as careless users make them: one per attempt.
CARELESS = """
import stepwell.demo.flows as demo
from stepwell import current_step, http

async def careless(what, order, receiver):
    attempt = str(current_step().attempt)
    headers = {"Idempotency-Key": f"{order}-{what}-{attempt}", demo.ATTEMPT_HEADER: attempt}
    answer = await http.send("POST", f"{receiver}/{what}", json={"order": order, "step": what}, headers=headers)
    return demo.Receipt(receipt=answer.json()["receipt"])

demo._tell = careless
order_flow = demo.order_flow
"""
# Steps that never end, so that the demo is there still whenever it is looked at.
ENDLESS = """
import asyncio
import stepwell.demo.flows as demo

async def endless(what, order, receiver):
    await asyncio.Event().wait()

demo._tell = endless
order_flow = demo.order_flow
"""
RUN_PLAN = "import sys; from stepwell.demo.command import Plan, run; sys.exit(run(Plan({})))"


class Place:
    """Where one demo runs: a temporary directory of its own, and a mark that all its processes inherit."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.mark = secrets.token_hex(8)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.directory), "DEMO_TEST_MARK": self.mark, **more}

    def processes(self) -> list[str]:
        """Command lines of the processes that carry the mark, or work here: the server writes over its environment."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
                folder = (entry / "cwd").readlink()
            except OSError:
                continue
            if self.mark.encode() in environ or folder.is_relative_to(self.directory):
                found.append(command.replace(b"\0", b" ").decode())
        return found

    def files(self) -> list[str]:
        return [path.name for path in self.directory.iterdir()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "t")


def demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stepwell.demo", *arguments]


def start_other(flows: str, processes: Any, place: Place) -> subprocess.Popen[str]:
    """A demo of other flows: the source of their module."""
    modules = place.directory.parent
    (modules / "other_flows.py").write_text(flows)
    path = os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    plan = RUN_PLAN.format("module='other_flows'")
    run: subprocess.Popen[str] = processes.python(plan, env=place.environment(PYTHONPATH=path))
    return run


def broken(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("demo: BROKEN: ")]


def test_two_demos_at_once_hold_and_leave_nothing_behind(processes: Any, tmp_path: Path) -> None:
    # One is led astray by its environment: a Redis and a proxy that are not there.
    nowhere = "127.0.0.1:1"
    astray = {"STEPWELL_REDIS_URL": f"redis://{nowhere}", "HTTP_PROXY": f"http://{nowhere}", "STEPWELL_DATA": nowhere}
    by_cli = [sys.executable, "-m", "stepwell.cli", "demo"]
    places = [Place(tmp_path / "a"), Place(tmp_path / "b")]
    runs = [
        processes.start(command, env=place.environment(**more))
        for command, place, more in zip((demo("--seed", "8"), by_cli), places, ({}, astray), strict=True)
    ]
    for run, place in zip(runs, places, strict=True):
        output, errors = run.communicate()
        assert run.returncode == 0, output + errors
        assert LAST_LINE.fullmatch(output.splitlines()[-1]), output
        assert errors == ""
        assert all(f"{step}: 50 steps, " in output for step in ("reserve", "charge", "ship", "notify"))
        assert place.files() == []
        if Path("/proc/self/environ").exists():
            assert place.processes() == []


def test_keys_that_change_with_the_attempt_are_found_out(processes: Any, place: Place) -> None:
    run = start_other(CARELESS, processes, place)
    output, errors = run.communicate()
    assert run.returncode == 1, output + errors
    assert re.search(r"BROKEN: [a-z]+ of order-[0-9]+ was sent with [2-9] different keys", output)
    assert re.search(r"BROKEN: [a-z]+ of order-[0-9]+ had [2-9] side effects", output)
    assert not LAST_LINE.search(output)


def test_a_demo_without_a_kill_fails(processes: Any, place: Place) -> None:
    run = processes.python(RUN_PLAN.format("kills=()"), env=place.environment())
    output, errors = run.communicate()
    assert run.returncode == 1, output + errors
    assert broken(output) == ["demo: BROKEN: the worker was never killed"]
    assert not LAST_LINE.search(output)


def test_a_worker_that_can_not_start_is_named_with_its_last_words(processes: Any, place: Place) -> None:
    run = processes.python(RUN_PLAN.format("module='no_such_module'"), env=place.environment())
    output, errors = run.communicate()
    assert run.returncode == 1, output + errors
    assert "demo: BROKEN: the worker ended before it was ready" in output
    assert "ModuleNotFoundError" in output
    assert errors == ""
    assert place.files() == []


@LINUX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_cleans_up(processes: Any, place: Place, number: signal.Signals) -> None:
    # Whoever runs the tests may have them ignore it, as `nohup` does; their processes would, too.
    before = signal.signal(number, signal.default_int_handler)
    run = start_other(ENDLESS, processes, place)
    signal.signal(number, before)
    wait_for_line(run, "orders started")
    assert len(place.processes()) >= 4  # the demo, the receiver, the worker and the server
    run.send_signal(number)
    _, errors = run.communicate()
    assert (run.returncode, errors) == (130, "demo: interrupted; its processes have ended\n")
    assert place.processes() == []
    assert place.files() == []


@LINUX
def test_no_process_outlives_a_demo_that_is_killed(
    processes: Any, place: Place, eventually: Callable[..., Any]
) -> None:
    run = start_other(ENDLESS, processes, place)
    wait_for_line(run, "orders started")
    assert len(place.processes()) >= 4
    run.kill()
    run.wait()
    eventually(lambda: not place.processes(), "the end of every process of the demo")


def test_keep_leaves_the_log_and_says_where(processes: Any, place: Place) -> None:
    run = processes.start(demo("--keep"), env=place.environment())
    wait_for_line(run, "orders started")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate()
    [kept] = place.files()
    assert errors.endswith(f"data, logs and the receiver's ledger: {place.directory / kept}\n")
    assert (place.directory / kept / "receiver.sqlite").stat().st_size > 0


def wait_for_line(run: subprocess.Popen[str], text: str) -> None:
    assert run.stdout is not None
    seen = []
    for line in run.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} never came: {seen}")
