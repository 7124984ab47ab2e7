"""The command line as people use it: real processes on an embedded server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from system.support.processes import HANG_SECONDS
from system.support.programs import Program, wait
from system.support.stage import NEVER_ENDING

from stepwell import Client
from stepwell.core.errors import ExecutionFailed
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer, server_binary

STEPWELL = Path(sysconfig.get_path("scripts")) / "stepwell"
PASSWORD = "s3cret-pw"
SHARDS = "2"  # by default there is one for each core, and a machine may have many

FLOWS = '''
import asyncio
import time
from datetime import date
from pathlib import Path

from stepwell import Retry, current_step, flow, step, wait_for


@step
async def greet(name: str) -> str:
    return f"hello {name}"


@step(retry=Retry(max_attempts=3, base=0.01, jitter=0))
async def need(flag: str) -> str:
    """Fails until the flag is there; returns its key."""
    if not Path(flag).exists():
        raise ConnectionError(f"{flag} is missing")
    return current_step().idempotency_key


@step
async def hold(mark: str) -> str:
    """Says that it runs, and ends when it is told to."""
    Path(mark).touch()
    while not Path(mark + ".go").exists():
        await asyncio.sleep(0.01)
    return "held to the end"


@step
def opaque() -> object:
    return {"lock": object()}


@flow
async def hello(name: str) -> str:
    return await greet(name)


@flow
async def needy(flag: str) -> str:
    await greet("first")
    return await need(flag)


@flow
async def approval() -> object:
    return await wait_for("approval")


@flow
async def holding(mark: str) -> str:
    return await hold(mark)


@flow
async def on_a_day(day: date) -> str:
    return await greet(day.isoformat())


@flow
async def unstorable() -> None:
    await opaque()


@flow
async def foreign() -> None:
    await asyncio.sleep(1)


@flow
async def clocked() -> float:
    return time.time()
'''


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.out)


class Shell:
    """Runs `stepwell` in a folder, as a user without any setting would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPWELL_")}

    def __call__(self, *arguments: str, **environment: str) -> Done:
        done = subprocess.run(
            [str(STEPWELL), *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str) -> Done:
        """Run a command that must succeed."""
        done = self(*arguments)
        assert done.code == 0, done
        return done

    def refused(self, *arguments: str, code: int = 2, **environment: str) -> str:
        """Run a command that must be refused by one sentence; returns that."""
        done = self(*arguments, **environment)
        assert (done.code, done.out) == (code, ""), done
        assert "Traceback" not in done.err
        sentence = done.err.strip()
        assert "\n" not in sentence, sentence
        assert PASSWORD not in sentence
        return sentence

    def worker(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `stepwell run flows.py` and wait until it is ready."""
        with (self.folder / "worker.log").open("a") as log:
            process = subprocess.Popen(
                [str(STEPWELL), "run", "flows.py", "--metrics-port", "0", "--shards", SHARDS, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("stepwell: running approval, clocked, foreign, hello, "), (ready, self.log)
        return process

    @property
    def log(self) -> str:
        """What workers have logged so far."""
        return (self.folder / "worker.log").read_text()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    """Send a signal and wait for the exit code."""
    with process:
        if process.poll() is None:
            process.send_signal(number)
        return process.wait(HANG_SECONDS)


def new_shell(folder: Path) -> Shell:
    (folder / "flows.py").write_text(FLOWS)
    return Shell(folder)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A folder whose worker runs all the time."""
    shell = new_shell(tmp_path_factory.mktemp("shop"))
    process = shell.worker()
    yield shell
    assert end(process) == 0, shell.log


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Shell]:
    """A folder of one's own, without a worker."""
    shell = new_shell(tmp_path)
    yield shell
    data = tmp_path / ".stepwell"
    if (data / "server.json").exists():  # a worker that was ended the hard way has left its server behind
        EmbeddedServer.use(data).leave()


def test_start_and_wait_prints_the_result(shell: Shell) -> None:
    done = shell.ok("start", "hello", "--input", '{"name": "Ada"}', "--id", "H1", "--wait")
    assert (done.data, done.err) == ("hello Ada", "")


def test_start_prints_an_id_that_result_takes(shell: Shell) -> None:
    execution_id = shell.ok("start", "hello", "--input", '{"name": "Bo"}').out.strip()
    assert shell.ok("result", execution_id, "--timeout", "150").data == "hello Bo"


def test_the_same_start_again_finds_the_same_execution(shell: Shell) -> None:
    start = ("start", "hello", "--id", "S1", "--input")
    shell.ok(*start, '{"name": "x"}')
    assert shell.ok(*start, '{"name": "x"}').out == "S1\n"
    assert "exists already with another input" in shell.refused(*start, '{"name": "y"}')


def test_show_as_json_has_the_names_that_stay(shell: Shell) -> None:
    shell("start", "needy", "--input", '{"flag": "never"}', "--id", "N0", "--wait")
    shown = shell.ok("show", "N0", "--json").data
    assert {"id", "flow", "status", "input", "result", "rev", "created_at", "updated_at"} <= set(shown)
    assert (shown["id"], shown["flow"], shown["status"], shown["open"]) == ("N0", "needy", "error", {})
    assert [(each["path"], each["status"]) for each in shown["steps"]] == [("greet", "completed"), ("need", "failed")]
    for step in shown["steps"]:
        assert {"path", "status", "token", "key", "result", "attempts", "started_at", "finished_at"} <= set(step)
        assert step["key"] == f"N0:{step['token']}"
    attempts = shown["steps"][1]["attempts"]
    assert [set(attempt) for attempt in attempts] == [{"n", "started_at", "ended_at", "error", "due_at"}] * 3
    assert [attempt["n"] for attempt in attempts] == [1, 2, 3]
    error = shown["error"]
    assert (error["type"], error["attempts"]) == ("ConnectionError", 3)
    assert error["failed_step"] == {"path": "need", "token": shown["steps"][1]["token"], "attempts": 3}
    assert "need" in error["open"]


def test_what_an_open_operation_shows(shell: Shell, eventually: Callable[..., Any]) -> None:
    shell.ok("start", "approval", "--id", "O1")
    shown = eventually(
        lambda: (found := shell.ok("show", "O1", "--json").data)["status"] == "waiting" and found, "it waits"
    )
    assert {"kind", "token", "attempt", "due_at"} <= set(shown["open"]["wait"])
    assert "send it: stepwell signal O1 approval" in shell.ok("show", "O1").out


def test_a_failed_execution_is_retried_with_the_same_key(shell: Shell) -> None:
    start = ("start", "needy", "--input", '{"flag": "mended"}', "--id", "N1", "--wait")
    failed = shell(*start)
    assert (failed.code, failed.out) == (1, "")
    assert "execution N1 failed: ConnectionError: mended is missing" in failed.err
    text = shell.ok("show", "N1").out
    assert "to do   mend the cause, then: stepwell retry N1" in text
    assert text.isprintable() or "✗" in text
    (key,) = [step["key"] for step in shell.ok("show", "N1", "--json").data["steps"] if step["path"] == "need"]
    (shell.folder / "mended").touch()
    assert shell.ok("retry", "N1").out.startswith("retry of N1 done")
    assert shell.ok("result", "N1", "--timeout", "150").data == key
    assert "refused" in shell.refused("retry", "N1")


def test_after_an_outage_all_that_failed_is_retried_with_the_same_keys(alone: Shell) -> None:
    worker = alone.worker()
    ids = [f"M{number}" for number in range(25)]
    again = ("retry", "--status", "error", "--flow", "needy")
    with Client(data_dir=alone.folder / ".stepwell") as client:
        for execution_id in ids:
            client.start("needy", {"flag": "never" if execution_id == ids[-1] else "up"}, execution_id)
        for execution_id in ids:
            with pytest.raises(ExecutionFailed):
                client.result(execution_id, HANG_SECONDS)
        (alone.folder / "up").touch()
        assert "give --yes to do it, or --dry-run to see them" in alone.refused(*again)
        listed = alone.ok(*again, "--dry-run")
        assert (sorted(listed.out.split()), listed.err) == (sorted(ids), "25 executions would be retried\n")
        assert alone.ok(*again, "--yes").out == "retried 25 executions\n"
        for execution_id in ids[:-1]:
            value = client.result(execution_id, HANG_SECONDS)
            assert [value] == [each["key"] for each in client.describe(execution_id)["steps"] if each["path"] == "need"]
        with pytest.raises(ExecutionFailed):
            client.result(ids[-1], HANG_SECONDS)
    done = alone("retry", *ids[:3])
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("retried 0 of 3 executions\n3 refused (M0, M1, M2): ")
    assert end(worker) == 0, alone.log


def test_a_signal_reaches_the_flow(shell: Shell) -> None:
    shell.ok("start", "approval", "--id", "W1")
    sent = shell.ok("signal", "W1", "approval", "--payload", '{"by": "Ada"}', "--json").data
    assert (sent["id"], sent["applied"]) == ("W1", True)
    assert shell.ok("result", "W1", "--timeout", "150").data == {"by": "Ada"}


def test_a_cancelled_execution_fails_those_who_wait(shell: Shell) -> None:
    shell.ok("start", "approval", "--id", "C1")
    assert shell.ok("cancel", "C1").out.startswith("cancel of C1 done")
    assert shell.refused("result", "C1", "--timeout", "150", code=1) == "stepwell: execution C1 was cancelled"
    assert "it was cancelled before" in shell.ok("cancel", "C1").out
    shell.ok("start", "hello", "--input", '{"name": "x"}', "--id", "C2", "--wait")
    assert "it has ended (completed)" in shell.refused("cancel", "C2")


def test_list_finds_by_status_and_flow(shell: Shell) -> None:
    shell.ok("start", "hello", "--input", '{"name": "x"}', "--id", "L1", "--attr", "plan=pro", "--wait")
    found = shell.ok("list", "--status", "completed", "--flow", "hello", "--json").data["executions"]
    assert "L1" in [each["id"] for each in found]
    assert {each["flow"] for each in found} == {"hello"}
    assert set(found[0]) == {"id", "flow", "status", "created_at", "updated_at", "attributes", "error"}
    (mine,) = shell.ok("list", "--attr", "plan=pro", "--since", "1h ago", "--json").data["executions"]
    assert (mine["id"], mine["attributes"]) == ("L1", {"plan": "pro"})
    assert "plan=pro" in shell.ok("show", "L1").out
    shell.ok("start", "hello", "--input", '{"name": "x"}', "--id", "L2", "--wait")
    page = shell.ok("list", "--limit", "1", "--json").data
    rest = shell.ok("list", "--cursor", page["cursor"], "--json").data
    assert page["executions"][0]["id"] == "L2"
    assert "L1" in [each["id"] for each in rest["executions"]]
    assert "another listing" in shell.refused("list", "--cursor", page["cursor"], "--status", "error")
    assert "L1" in shell.ok("list").out
    assert "unknown status" in shell.refused("list", "--status", "complete")


def test_a_wait_that_takes_too_long_says_what_it_waits_for(shell: Shell) -> None:
    shell.ok("start", "approval", "--id", "T1")
    assert "has not ended within 0 s" in shell.refused("result", "T1", "--timeout", "0")


def test_errors_come_as_json_on_stdout(shell: Shell) -> None:
    done = shell("result", "nobody", "--json")
    assert (done.code, done.err) == (2, "")
    assert done.data["error"]["type"] == "UnknownExecution"


def test_explain_gives_the_delays_that_the_row_has(shell: Shell) -> None:
    shell("start", "needy", "--input", '{"flag": "never"}', "--id", "E1", "--wait")
    exact = shell.ok("explain", "flows.py:needy", "--id", "E1", "--path", "need", "--json").data
    need = shell.ok("show", "E1", "--json").data["steps"][1]
    assert exact["token"] == need["token"]
    real = [attempt["due_at"] - attempt["ended_at"] for attempt in need["attempts"][:-1]]
    assert all(abs(ms - seconds * 1000) <= 1 for ms, seconds in zip(real, exact["delays"], strict=True))


def test_explain_knows_the_token_before_the_execution_is_started(shell: Shell) -> None:
    explain = ("explain", "flows.py:needy", "--id", "E2", "--path", "need", "--json")
    before = shell.ok(*explain).data
    shell("start", "needy", "--input", '{"flag": "never"}', "--id", "E2", "--wait")
    assert shell.ok("show", "E2", "--json").data["steps"][1]["token"] == before["token"]
    assert shell.ok(*explain).data == before


def test_dead_letters_can_be_listed(shell: Shell) -> None:
    assert isinstance(shell.ok("dead", "list", "--json").data, list)


def test_a_flow_that_reads_the_clock_is_warned_about_with_its_line(shell: Shell) -> None:
    line = FLOWS.splitlines().index("    return time.time()") + 1
    assert f"flows.py:{line}: flow clocked calls time.time(): move it into a @step" in shell.log


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "helo"], "no living worker knows the flow 'helo' (did you mean hello?)"),
        (["start", "hello"], "name"),
        (["start", "hello", "--input", '{"name": "x", "nme": 1}'], "nme"),
        (["start", "hello", "--input", '{"name": 5}'], "does not fit its parameters"),
        (["start", "hello", "--input", "[]"], "--input is no JSON object"),
        (["start", "hello", "--input", "{name: x}"], "--input is not JSON"),
        (["start", "hello", "--input", "@nowhere.json"], "can't be read: No such file or directory"),
        (["start", "hello", "--id", ""], "expected an execution id"),
        (["start", "hello", "--id", "a/b c"], "expected an execution id"),
        (["start", "he llo"], "expected a flow name"),
        (["result", "é"], "expected an execution id"),
        (["show", "nobody"], "there is no execution 'nobody'"),
        (["retry", "nobody"], "there is no execution 'nobody'"),
        (["cancel", "nobody"], "there is no execution 'nobody'"),
        (["signal", "nobody", "x"], "there is no execution 'nobody'"),
        (["signal", "nobody", "x y"], "expected a signal name"),
    ],
)
def test_bad_input_is_one_clear_sentence(shell: Shell, arguments: list[str], said: str) -> None:
    assert said in shell.refused(*arguments)


def test_a_payload_over_the_limit_is_refused_with_its_size(shell: Shell) -> None:
    (shell.folder / "big.json").write_text(json.dumps({"name": "x" * 1_100_000}))
    said = shell.refused("start", "hello", "--input", "@big.json", "--id", "B1")
    assert "1048576" in said.replace(",", "").replace("_", "") or "1 MiB" in said, said
    assert "there is no execution" in shell.refused("show", "B1")


@pytest.mark.parametrize(
    ("flow", "given", "said"),
    [
        ("on_a_day", {"day": "never"}, "does not fit"),
        ("unstorable", {}, "the result of step opaque"),
        ("foreign", {}, "into a @step"),
    ],
)
def test_what_only_the_worker_can_tell_ends_the_execution_with_a_clear_error(
    shell: Shell, flow: str, given: dict[str, Any], said: str
) -> None:
    done = shell("start", flow, "--input", json.dumps(given), "--wait", "--timeout", "150")
    assert done.code == 1, done
    assert said in done.err
    assert "Traceback" not in done.err


def test_unchecked_queues_what_no_worker_knows(shell: Shell, eventually: Callable[..., Any]) -> None:
    shell.ok("start", "later", "--unchecked", "--id", "U1")
    shown = eventually(
        lambda: (found := shell.ok("show", "U1", "--json").data)["status"] == "parked" and found, "it is parked"
    )
    assert shown["error"]["type"] == "not deployed here"
    assert "run all workers with the flow later" in shell.ok("show", "U1").out


def test_without_a_worker_a_start_is_queued_and_kept(alone: Shell) -> None:
    done = alone.ok("start", "hello", "--input", '{"name": "Q"}', "--id", "Q1")
    assert (done.out, "no worker is running: start one with `stepwell run FILE`" in done.err) == ("Q1\n", True)
    assert "no worker is running" in alone.ok("show", "Q1").err
    process = alone.worker()
    assert alone.ok("result", "Q1", "--timeout", "150").data == "hello Q"
    assert end(process) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_lets_running_steps_finish(
    alone: Shell, eventually: Callable[..., Any], number: signal.Signals
) -> None:
    process = alone.worker("--grace", NEVER_ENDING)
    alone.ok("start", "holding", "--input", '{"mark": "running"}', "--id", "D1")
    mark = alone.folder / "running"
    eventually(mark.exists, "the step runs")
    process.send_signal(number)
    eventually(lambda: "draining" in alone.log, "the worker drains")
    (alone.folder / "running.go").touch()
    with process:
        assert process.wait(HANG_SECONDS) == 0, alone.log
    [step] = alone.ok("show", "D1", "--json").data["steps"]
    assert (step["status"], step["interruptions"], len(step["attempts"])) == ("completed", 0, 1)


def test_the_grace_time_ends_a_drain_and_bills_nothing(alone: Shell, eventually: Callable[..., Any]) -> None:
    process = alone.worker("--grace", "0")
    alone.ok("start", "holding", "--input", '{"mark": "running"}', "--id", "D2")
    eventually((alone.folder / "running").exists, "the step runs")
    assert end(process) == 0
    (alone.folder / "running.go").touch()
    again = alone.worker()
    assert alone.ok("result", "D2", "--timeout", "150").data == "held to the end"
    [step] = alone.ok("show", "D2", "--json").data["steps"]
    assert (step["interruptions"], [attempt["n"] for attempt in step["attempts"]]) == (1, [1])
    assert end(again) == 0


def test_a_second_signal_stops_at_once(alone: Shell, eventually: Callable[..., Any]) -> None:
    process = alone.worker("--grace", NEVER_ENDING)
    alone.ok("start", "holding", "--input", '{"mark": "running"}', "--id", "D3")
    eventually((alone.folder / "running").exists, "the step runs")
    process.send_signal(signal.SIGTERM)
    eventually(lambda: "draining" in alone.log, "the worker drains")
    assert end(process) != 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module\n", "line 1 of {file}: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:\n", "line 1 of {file}: SyntaxError"),
        ("x = 1\n", "has no flow: decorate an `async def` in it with @flow"),
    ],
)
def test_a_file_that_can_not_be_run_is_one_clear_sentence(alone: Shell, text: str, said: str) -> None:
    file = alone.folder / "faulty.py"
    file.write_text(text)
    assert said.format(file=file.resolve()) in alone.refused("run", "faulty.py")


def test_a_worker_without_its_file_says_so(alone: Shell) -> None:
    assert "there is no file nowhere.py" in alone.refused("run", "nowhere.py")
    assert "there is no module 'no.such'" in alone.refused("run", "no.such")


def test_verbose_shows_the_traceback(alone: Shell) -> None:
    done = alone("run", "nowhere.py", "-v")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.strip().endswith("check the path (from " + str(alone.folder.resolve()) + ")")


COMMANDS = [
    ["run", "flows.py"],
    ["start", "hello"],
    ["result", "x"],
    ["show", "x"],
    ["list"],
    ["retry", "x"],
    ["cancel", "x"],
    ["signal", "x", "y"],
    ["dead", "list"],
    ["explain", "flows.py:hello", "--id", "x", "--path", "greet"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_an_unreachable_redis_is_one_clear_sentence(alone: Shell, command: list[str]) -> None:
    url = f"redis://:{PASSWORD}@localhost:1"
    done = alone(*command, STEPWELL_REDIS_URL=url)
    assert (done.code, done.out) == (2, "")
    assert "refused the connection: start it, or correct the address" in done.err
    assert PASSWORD not in done.err
    assert "Traceback" not in done.err


@pytest.fixture
def locked(sockets: Path, processes: Any) -> str:
    """The socket of a server that wants a password."""
    socket = sockets / "locked"
    command = [server_binary(), "--port", "0", "--save", "", "--dir", sockets, "--unixsocket", socket]
    program = Program([*command, "--requirepass", PASSWORD], sockets / "log", processes.start)
    with connect(f"unix://:{PASSWORD}@{socket}") as client:
        wait(client.ping, "the server answers", program)
    return str(socket)


@pytest.mark.parametrize("command", [["run", "flows.py"], ["list"], ["start", "hello"]], ids=["run", "list", "start"])
@pytest.mark.parametrize("userinfo", ["", ":wrong@"], ids=["none", "wrong"])
def test_a_wrong_password_is_one_clear_sentence(alone: Shell, locked: str, command: list[str], userinfo: str) -> None:
    done = alone(*command, "--redis", f"unix://{userinfo}{locked}")
    assert (done.code, done.out) == (2, ""), done
    assert "password" in done.err
    assert "wrong@" not in done.err
    assert "Traceback" not in done.err


def test_the_right_password_is_never_shown(alone: Shell, locked: str) -> None:
    url = f"unix://:{PASSWORD}@{locked}"
    assert PASSWORD not in alone.ok("list", "--redis", url, "-v").err
    assert alone.ok("start", "hello", "--input", '{"name": "x"}', "--redis", url, "--id", "P1").out == "P1\n"


def test_a_data_folder_that_can_not_be_one_is_refused(alone: Shell) -> None:
    (alone.folder / "file").write_text("")
    assert "file" in alone.refused("list", "--data", "file")


def test_a_taken_metrics_port_is_an_error_when_it_was_asked_for(alone: Shell, shell: Shell) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = alone("run", "flows.py", "--metrics-port", port)
    assert (done.code, done.out) == (2, "")
    assert f"can't listen on 0.0.0.0 port {port}" in done.err
    assert "Traceback" not in done.err


def test_init_gives_a_file_that_runs(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.ok("init", "shop")
    assert "exists already" in shell.refused("init", "shop")
    explained = shell.ok("explain", "shop/flows.py", "--json").data
    assert [step["step"] for step in explained[0]["steps"]] == ["reserve", "charge", "release", "ship", "notify"]


def test_a_closed_pipe_ends_a_command_quietly(shell: Shell) -> None:
    command = f"{STEPWELL} explain flows.py --json | true"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=shell.folder, env=shell.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_is_offered(alone: Shell) -> None:
    done = alone("--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "Traceback" not in done.err


def test_the_version_comes_quickly_and_alone(alone: Shell) -> None:
    assert alone.ok("--version").out.startswith("stepwell 0.")
