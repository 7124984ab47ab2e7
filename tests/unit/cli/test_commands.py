"""The commands: what goes to the client, what is printed where, and the exit code."""

from __future__ import annotations

import contextvars
import io
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stepwell.cli import executions, looking, main
from stepwell.client import CommandResult, Page
from stepwell.core.advice import NO_WORKER
from stepwell.core.errors import (
    CommandRefused,
    ExecutionCancelled,
    ExecutionFailed,
    StoreUnreachable,
    UnknownFlow,
)
from stepwell.flow.lint import lint
from stepwell.flow.loader import load
from stepwell.flow.tracing import parent_of_start
from stepwell.worker.config import WorkerConfig

FAILURE = {"type": "StepFailed", "message": "step charge failed", "attempts": 5, "failed_step": None, "open": {}}


def view(**changes: Any) -> dict[str, Any]:
    given = {"id": "A1", "flow": "checkout", "status": "running", "input": None, "result": None, "rev": 1}
    empty = {"steps": [], "waits": [], "open": {}, "error": None, "created_at": 0}
    return {**given, **empty, **changes}


def step(path: str, status: str, declared: int, *attempts: dict[str, Any]) -> dict[str, Any]:
    kept = {"attempts": list(attempts), "declared_at": declared, "interruptions": 0, "drains": 0}
    return {"path": path, "status": status, "key": "A1:ab", **kept}


def attempt(n: int, started: int, ended: int, error: str) -> dict[str, Any]:
    failure = {"type": "HttpError", "message": error, "reason": "", "where": ""}
    return {"n": n, "started_at": started, "ended_at": ended, "error": failure, "due_at": None}


class FakeClient:
    """Answers from a table; an exception in it is raised. Remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "start": "A1",
            "workers": [{"id": "w"}],
            "why_idle": "",
            "describe": view(),
            "now_ms": 0,
            **answers,
        }
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*arguments: Any, **options: Any) -> Any:
            self.asked.append((name, *arguments, *options.values()))
            found = self.answers[name]
            if isinstance(found, BaseException):
                raise found
            return found

        return answer

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(client, *arguments)` gives the exit code, stdout and stderr."""

    def running(client: FakeClient, *arguments: str) -> tuple[int, str, str]:
        for module in (executions, looking):
            monkeypatch.setattr(module, "open_client", lambda *_, **__: client)
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return running


def test_start_prints_the_id_and_nothing_else(run: Run) -> None:
    client = FakeClient()
    assert run(client, "start", "checkout", "--input", '{"order": "A1"}', "--id", "A1") == (0, "A1\n", "")
    assert client.asked[0] == ("start", "checkout", {"order": "A1"}, "A1", None, False)


def test_start_without_a_worker_says_so_and_succeeds(run: Run) -> None:
    code, out, err = run(FakeClient(why_idle=NO_WORKER), "start", "checkout")
    assert (code, out) == (0, "A1\n")
    assert err == (
        "execution A1 is queued; no worker is running: start one with `stepwell run FILE`"
        " (one that is just starting takes it, too)\n"
    )


def test_start_and_wait_prints_the_result_alone_on_stdout(run: Run) -> None:
    client = FakeClient(result={"paid": True})
    code, out, err = run(client, "start", "checkout", "--wait", "--timeout", "5")
    assert (code, json.loads(out), err) == (0, {"paid": True}, "execution A1\n")
    assert client.asked[-1] == ("result", "A1", 5.0)


def test_start_and_wait_for_a_failure_exits_with_1_and_says_why(run: Run) -> None:
    code, out, err = run(FakeClient(result=ExecutionFailed("A1", FAILURE)), "start", "checkout", "--id", "A1", "--wait")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "stepwell: execution A1 failed: StepFailed: step charge failed",
        "look at it: stepwell show A1",
        "to do: mend the cause, then: stepwell retry A1 (the same keys, a fresh budget)",
    ]


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"compensated": True}, "start another execution: the flow went on after that failure"),
        ({"type": "InvalidInput", "detail": ""}, "start another execution with an input that fits"),
    ],
)
def test_a_failure_that_a_retry_can_not_mend_is_not_sent_into_one(
    run: Run, changes: dict[str, Any], advice: str
) -> None:
    error = ExecutionFailed("A1", {**FAILURE, **changes})
    for command in (["result", "A1"], ["start", "checkout", "--id", "A1", "--wait"]):
        assert f"to do: {advice}" in run(FakeClient(result=error), *command)[2]


@pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked"])
def test_looking_at_what_has_not_ended_says_that_no_worker_runs(run: Run, status: str) -> None:
    shown = view(status=status)
    told = "no worker is running: start one with `stepwell run FILE`"
    assert run(FakeClient(describe=shown, why_idle=NO_WORKER), "show", "A1")[2] == f"{told}\n"
    assert run(FakeClient(list=Page([{**LISTED, "status": status}]), why_idle=NO_WORKER), "list")[2] == f"{told}\n"
    idle = FakeClient(describe=shown, why_idle=NO_WORKER, result=1)
    assert run(idle, "result", "A1") == (0, "1\n", f"execution A1 is {status}; {told}\n")
    busy = FakeClient(describe=shown, list=Page([{**LISTED, "status": status}]), result=1)
    for command in (["show", "A1"], ["list"], ["result", "A1"]):
        assert run(busy, *command)[2] == ""


def test_who_waits_for_what_is_parked_is_told_what_to_do_first(run: Run) -> None:
    parked = {"type": "not deployed here", "message": "known: pay", "failed_step": None, "open": {}}
    client = FakeClient(describe=view(status="parked", error=parked), result=1)
    assert run(client, "result", "A1") == (
        0,
        "1\n",
        "execution A1 is parked (not deployed here: known: pay);"
        " to do: run all workers with the flow checkout: it goes on once the one in charge has it\n",
    )
    assert run(client, "result", "A1", "--timeout", "5")[2] == "", "its timeout tells"


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_what_has_ended_needs_no_worker(run: Run, status: str) -> None:
    client = FakeClient(
        describe=view(status=status), list=Page([{**LISTED, "status": status}]), why_idle=NO_WORKER, result=1
    )
    for command in (["show", "A1"], ["list"], ["result", "A1"]):
        assert run(client, *command)[2] == ""


def test_a_start_belongs_to_the_span_that_the_environment_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setenv("TRACEPARENT", header)

    def started() -> tuple[str, str]:
        run(FakeClient(), "start", "checkout")
        return parent_of_start()

    assert contextvars.copy_context().run(started) == (header, "")


def test_unchecked_is_passed_on(run: Run) -> None:
    client = FakeClient()
    run(client, "start", "checkout", "--unchecked")
    assert client.asked[0] == ("start", "checkout", None, None, None, True)


def test_input_comes_from_a_file_or_from_stdin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "input.json"
    file.write_text('\ufeff{"order": "Ä"}', encoding="utf-8")
    client = FakeClient()
    assert run(client, "start", "checkout", "--input", f"@{file}")[0] == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"order": "B"}')))
    assert run(client, "start", "checkout", "--input", "@-")[0] == 0
    assert [asked[2] for asked in client.asked if asked[0] == "start"] == [{"order": "Ä"}, {"order": "B"}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "--input is not JSON (Expecting property name"),
        ("", "--input is not JSON"),
        ("[1]", "--input is no JSON object of the flow's arguments"),
        ('{"x": NaN}', "--input is not JSON that can be stored: NaN is no JSON number"),
        ("[" * 100_000, "--input is not JSON that can be stored"),
        ("@/no/such/file", "the file that --input @/no/such/file names can't be read: No such file or directory"),
        ("@/", "the file that --input @/ names can't be read: Is a directory"),
    ],
)
def test_a_wrong_input_is_one_clear_sentence(run: Run, given: str, said: str) -> None:
    code, out, err = run(FakeClient(), "start", "checkout", "--input", given)
    assert (code, out) == (2, "")
    assert err.startswith(f"stepwell: {said}")
    assert err.count("\n") == 1


def test_a_file_that_is_no_text_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe{")
    assert "is not UTF-8 text" in run(FakeClient(), "start", "checkout", "--input", f"@{tmp_path / 'x'}")[2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownFlow("no living worker knows the flow 'x'"), 2),
        (StoreUnreachable("Redis at redis://localhost refused the connection"), 2),
        (TimeoutError("execution A1 has not ended within 5 s"), 2),
        (ExecutionCancelled("A1"), 1),
        (ExecutionFailed("A1", FAILURE), 1),
        (ZeroDivisionError("division by zero"), 2),
    ],
)
def test_each_error_has_its_exit_code_and_no_traceback(run: Run, error: Exception, code: int) -> None:
    found, out, err = run(FakeClient(result=error), "result", "A1")
    assert (found, out) == (code, "")
    assert str(error) in err
    assert "Traceback" not in err
    for verbose in (["result", "A1", "-v"], ["-v", "result", "A1"]):
        assert "Traceback" in run(FakeClient(result=error), *verbose)[2]


def test_errors_are_json_when_json_is_asked_for(run: Run) -> None:
    code, out, err = run(FakeClient(result=ExecutionFailed("A1", FAILURE)), "result", "A1", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "error": {
            "type": "ExecutionFailed",
            "message": "execution A1 failed: StepFailed: step charge failed",
            "execution": "A1",
            "failure": FAILURE,
        }
    }


def test_credentials_are_hidden_in_errors_and_in_tracebacks(run: Run) -> None:
    for flag in ("--json", "-v"):
        error = StoreUnreachable("no answer from redis://:hunter2@db:6379")
        _, out, err = run(FakeClient(result=error), "result", "A1", flag)
        assert "hunter2" not in out + err
        assert "***@db" in out + err


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (CommandResult(True, "running"), "retry of A1 done; it is running now"),
        (
            CommandResult(True, "running", "2 steps begin again"),
            "retry of A1 done: 2 steps begin again; it is running now",
        ),
        (
            CommandResult(True, "error"),
            "retry of A1 done, but it has ended in error again: see `stepwell show A1`",
        ),
        (CommandResult(True, "parked"), "retry of A1 done, but it is parked again: see `stepwell show A1`"),
        (
            CommandResult(None, "error", "no worker is running; the retry waits in the inbox"),
            "retry of A1 was sent, but not applied yet (it is error):"
            " no worker is running; the retry waits in the inbox",
        ),
    ],
)
def test_a_command_says_what_became_of_it(run: Run, told: CommandResult, said: str) -> None:
    assert run(FakeClient(retry=told), "retry", "A1") == (0, f"{said}\n", "")
    code, out, _ = run(FakeClient(retry=told), "retry", "A1", "--json")
    answer = {"id": "A1", "applied": told.applied, "status": told.status, "note": told.note}
    assert (code, json.loads(out)) == (0, answer)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (CommandResult(True, "cancelled"), "cancel of A1 done; it is cancelled now"),
        (
            CommandResult(True, "cancelled", "it was cancelled before"),
            "cancel of A1 changed nothing: it was cancelled before",
        ),
        (
            CommandResult(True, "running", "it was cancelled before"),
            "cancel of A1 changed nothing: it was cancelled before, and is running still",
        ),
    ],
)
def test_a_cancel_says_whether_it_changed_anything(run: Run, told: CommandResult, said: str) -> None:
    assert run(FakeClient(cancel=told), "cancel", "A1") == (0, f"{said}\n", "")


def test_a_refused_command_gives_the_reason_and_exits_with_2(run: Run) -> None:
    refused = CommandRefused("cancel of A1 refused: it has ended (completed)")
    assert run(FakeClient(cancel=refused), "cancel", "A1") == (2, "", f"stepwell: {refused}\n")


def test_a_signal_carries_its_payload(run: Run) -> None:
    client = FakeClient(signal=CommandResult(True, "waiting"))
    assert run(client, "signal", "A1", "approval", "--payload", '{"by": "Ada"}')[0] == 0
    assert run(client, "signal", "A1", "go")[0] == 0
    assert client.asked == [("signal", "A1", "approval", {"by": "Ada"}), ("signal", "A1", "go", None)]


def test_show_reckons_by_the_servers_clock(run: Run) -> None:
    shown = view(waits=[], signals=[], failures=[], created_at=1_767_323_045_000)
    assert ", 5 s ago\n" in run(FakeClient(describe=shown, now_ms=1_767_323_050_000), "show", "A1")[1]


LISTED = {
    "id": "A1",
    "flow": "checkout",
    "status": "error",
    "created_at": 1_767_323_045_000,
    "updated_at": 0,
    "attributes": {},
    "error": None,
}


def test_list_is_a_table_or_json(run: Run) -> None:
    client = FakeClient(list=Page([LISTED], looked=1))
    code, out, _ = run(client, "list", "--status", "error", "--flow", "checkout", "--limit", "7")
    heading, row = out.splitlines()
    assert code == 0
    assert heading.split() == ["ID", "STATUS", "CREATED", "CHANGED", "FLOW"]
    assert row.split()[:3] == ["A1", "error", "2026-01-02T03:04:05.000Z"]
    assert client.asked == [("list", "error", "checkout", 7, None, None, None, None, None, False, None)]
    assert json.loads(run(client, "list", "--json")[1]) == {
        "executions": [LISTED],
        "cursor": None,
        "looked": 1,
        "at": 0,
    }


def test_list_passes_on_what_is_looked_for_and_says_how_to_go_on(run: Run) -> None:
    found = {"customer": "c7", "note": "a=b\n" + "x" * 40, "other": 1}
    client = FakeClient(list=Page([{**LISTED, "error": "ValueError", "attributes": found}], "c0ffee", 3000))
    options = ["--error", "ValueError", "--attr", "customer=c7", "--attr", "note=a=b", "--since", "2h ago"]
    code, out, err = run(client, "list", *options, "--until", "1h", "--cursor", "abc")
    assert code == 0
    given = {"customer": "c7", "note": "a=b"}
    assert client.asked == [("list", None, None, 100, "ValueError", given, "2h ago", "1h", "abc", False, None)]
    heading, row = out.splitlines()
    assert heading.split()[4:] == ["ERROR", "customer", "note", "FLOW"], "what was asked for is shown"
    assert row.split()[-4:] == ["ValueError", "c7", f"a=b\\n{'x' * 19}…", "checkout"]
    assert err == "looked at 3,000, found 1; go on with --cursor c0ffee\n"
    all_fit = FakeClient(list=Page([LISTED], "c0ffee", 1))
    assert run(all_fit, "list")[2] == "go on with --cursor c0ffee\n", (
        "that as many were found as looked at says nothing"
    )
    answer = json.loads(run(client, "list", "--json")[1])
    assert (answer["cursor"], answer["looked"], len(answer["executions"])) == ("c0ffee", 3000, 1)


@pytest.mark.parametrize("command", ["list", "retry", "cancel"])
def test_a_step_chooses_only_among_what_backs_off(run: Run, command: str) -> None:
    code, out, err = run(FakeClient(list=Page()), command, "--step", "charge")
    assert (code, out) == (2, "")
    assert err == "stepwell: --step chooses among those that back off: give --backing-off, too, or leave it out\n"


def test_an_empty_list_is_no_output_but_a_remark(run: Run) -> None:
    nothing = FakeClient(list=Page())
    assert run(nothing, "list", "--status", "error") == (0, "", "there is no execution of status error\n")
    asked = run(nothing, "list", "--attr", "a=1", "--attr", "b=2", "--error", "E", "--since", "1h")
    assert asked == (0, "", "there is no execution with a=1 and b=2 and the error E since 1h\n")
    asked = run(nothing, "list", "--error", "Down")
    assert asked == (0, "", "there is no execution with the error Down\n")
    assert run(nothing, "list", "--cursor", "abc") == (0, "", "there are no more\n")
    empty = {"executions": [], "cursor": None, "looked": 0, "at": 0}
    assert json.loads(run(nothing, "list", "--json")[1]) == empty
    more = "looked at 3,000, found 0; go on with --cursor c0ffee\n"
    assert run(FakeClient(list=Page([], "c0ffee", 3000)), "list") == (0, "", more)


@pytest.mark.parametrize("command", [["list"], ["start", "checkout"]])
@pytest.mark.parametrize("given", [["customer"], ["a=1", "a=2"]])
def test_an_attribute_without_a_value_or_given_twice_is_refused(run: Run, command: list[str], given: list[str]) -> None:
    options = [word for each in given for word in ("--attr", each)]
    code, _, err = run(FakeClient(list=Page()), *command, *options)
    assert code == 2
    assert "NAME=VALUE" in err


def test_start_passes_attributes_on_as_texts(run: Run) -> None:
    client = FakeClient()
    assert run(client, "start", "checkout", "--attr", "customer=c7", "--attr", "n=1")[0] == 0
    assert client.asked[0] == ("start", "checkout", None, None, {"customer": "c7", "n": "1"}, False)


def test_show_gives_what_describe_has_as_json(run: Run) -> None:
    shown = {"id": "A1", "status": "completed"}
    assert json.loads(run(FakeClient(describe=shown), "show", "A1", "--json")[1]) == shown


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["start"], ["start", "x", "--nope"], ["list", "--limit", "0"], ["list", "--limit", "x"], ["run"]],
)
def test_what_the_parser_refuses_exits_with_2(run: Run, arguments: list[str]) -> None:
    code, out, err = run(FakeClient(), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: stepwell")
    assert "\nstepwell: " in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope", "--json"], "nope"),
        (["start", "--json"], "FLOW"),
        (["list", "--json", "--limit", "0"], "--limit"),
        (["start", "x", "--json", "--nope"], "--nope"),
    ],
)
def test_what_the_parser_refuses_is_json_where_json_is_asked_for(run: Run, arguments: list[str], said: str) -> None:
    code, out, err = run(FakeClient(), *arguments)
    assert (code, err) == (2, "")
    error = json.loads(out)["error"]
    assert error["type"] == "UsageError"
    assert said in error["message"]


def test_help_beside_json_is_help(run: Run) -> None:
    code, out, _ = run(FakeClient(), "list", "--json", "--help")
    assert code == 0
    assert "stepwell list" in out


def test_an_error_is_shown_whole_where_no_screen_is_too_narrow(run: Run) -> None:
    failed = step("charge", "failed", 0, attempt(1, 0, 5, "x" * 500))
    assert "x" * 500 in run(FakeClient(describe=view(steps=[failed])), "show", "A1")[1]


def test_the_package_is_a_program_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["stepwell", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("stepwell", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("stepwell 0.")


def test_a_timeout_without_waiting_is_refused(run: Run) -> None:
    assert run(FakeClient(), "start", "x", "--timeout", "3")[0] == 2


def test_an_interrupted_wait_says_that_the_execution_goes_on(run: Run) -> None:
    code, _, err = run(FakeClient(result=KeyboardInterrupt()), "start", "checkout", "--id", "A1", "--wait")
    assert code == 130
    assert err == "the execution goes on: stepwell result A1\n"


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "start",
        "result",
        "show",
        "list",
        "retry",
        "cancel",
        "signal",
        "dead",
        "doctor",
        "explain",
        "demo",
        "init",
    ],
)
def test_the_help_of_each_command_has_an_example(run: Run, command: str) -> None:
    code, out, _ = run(FakeClient(), command, "--help")
    assert code == 0
    assert f"stepwell {command}" in out.partition("Example")[2]


def test_the_demo_gets_its_options_and_gives_its_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("stepwell.demo.main", lambda arguments: asked.append(list(arguments)) or 1)
    assert run(FakeClient(), "demo", "--keep", "--seed", "7")[0] == 1
    assert run(FakeClient(), "demo")[0] == 1
    assert asked == [["--keep", "--seed", "7"], []]


def test_the_version_is_printed(run: Run) -> None:
    code, out, _ = run(FakeClient(), "--version")
    assert code == 0
    assert out.startswith("stepwell 0.")


def test_both_a_url_and_a_data_folder_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--redis", "redis://localhost", "--data", "x"]) == 2
    assert "not both" in capsys.readouterr().err


WARNED = "import time\nfrom stepwell import flow\n\n@flow\nasync def hasty() -> None:\n    time.time()\n"


class NoServer:
    """A worker that finds no server."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def install_signals(self) -> None: ...

    def start(self) -> None:
        raise StoreUnreachable("Redis at redis://localhost refused the connection")


def test_a_worker_without_a_server_says_that_and_nothing_of_the_flows(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepwell.worker.parent.Parent", NoServer)
    monkeypatch.setattr("stepwell.metrics.logs.setup_logging", lambda *_: None)
    file = tmp_path / "hasty_flows.py"
    file.write_text(WARNED)
    code, out, err = run(FakeClient(), "run", str(file), "--metrics-port", "0")
    assert (code, out) == (2, "")
    assert err == "stepwell: Redis at redis://localhost refused the connection\n"
    assert caplog.messages == []
    [flow] = load([str(file)])
    assert lint(flow) != []


class Heard:
    """A worker that only tells what it was told."""

    heard: ClassVar[list[WorkerConfig]] = []

    def __init__(self, config: WorkerConfig, *_: object) -> None:
        self.heard.append(config)
        raise StoreUnreachable("enough")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], (9464, 0, "0.0.0.0")),
        (["--metrics-port", "0"], (0, None, "0.0.0.0")),
        (["--metrics-host", "127.0.0.1"], (9464, 0, "127.0.0.1")),
        (["--metrics-host", "[::1]", "--metrics-port", "9000"], (9000, None, "::1")),
        (["--no-metrics"], (None, 0, "0.0.0.0")),
    ],
)
def test_a_worker_is_told_where_to_serve_its_metrics_if_at_all(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: list[str], told: tuple[int | None, int | None, str]
) -> None:
    monkeypatch.setattr("stepwell.worker.parent.Parent", Heard)
    monkeypatch.setattr("stepwell.metrics.logs.setup_logging", lambda *_: None)
    assert run(FakeClient(), "run", "flows.py", *options)[0] == 2
    config = Heard.heard.pop()
    assert (config.metrics_port, config.metrics_port_else, config.metrics_host) == told


def test_a_port_for_metrics_that_shall_not_be_served_is_refused(run: Run) -> None:
    code, _, err = run(FakeClient(), "run", "flows.py", "--no-metrics", "--metrics-port", "9000")
    assert (code, "exclude each other" in err) == (2, True)
