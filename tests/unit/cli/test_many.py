"""`retry` and `cancel` of many: which they are, who agrees, how far it is, and what became of each."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stepwell.cli import bulk, choosing, commanding, executions, main
from stepwell.cli.bulk import AT_ONCE, REASONS_MAX, Tally, do_all, progress
from stepwell.cli.session import Session
from stepwell.client import CommandResult, Page
from stepwell.core.advice import NO_WORKER
from stepwell.core.errors import CommandRefused, StoreUnreachable, UnknownExecution
from stepwell.core.rules import commands as rules
from stepwell.core.status import TERMINAL

Run = Callable[..., tuple[int, str, str]]


class FakeClient:
    """Has executions of some statuses; `refuses` says why a command to one of them fails."""

    def __init__(self, *found: tuple[str, str, int], living: bool = True) -> None:
        self.found = [{"id": i, "status": s, "flow": "f", "updated_at": at} for i, s, at in found]
        self.refuses: dict[str, BaseException] = {}
        self.living = living
        self.asked: list[Any] = []
        self.sent: list[Any] = []

    def list(self, status: str | None, flow: str | None, limit: int, *, cursor: str | None, **more: Any) -> Page:
        """Pages of two, so that there are several."""
        if cursor is None:
            self.asked.append((status, flow, limit, {name: value for name, value in more.items() if value}))
        begin = int(cursor or "0")
        fitting = [each for each in self.found if status in (None, each["status"])]
        return Page(fitting[begin : begin + 2], str(begin + 2) if len(fitting) > begin + 2 else None)

    def workers(self) -> list[Any]:
        return [{"id": "w"}] if self.living else []

    def why_idle(self) -> str:
        return "" if self.living else NO_WORKER

    def retry(self, execution_id: str, timeout: float | None = 10.0) -> CommandResult:
        self.sent.append((execution_id, timeout))
        if execution_id in self.refuses:
            raise self.refuses[execution_id]
        if not self.living:
            return CommandResult(None, "error", "no worker is running; the retry waits in the inbox")
        return CommandResult(True, "running")

    cancel = retry

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


FAILED = [(f"e{n}", "error", n) for n in (3, 1, 2)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(client, *arguments)` gives the exit code, stdout and stderr."""

    def running(client: FakeClient, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(executions, "open_client", lambda *_, **__: client)
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return running


def test_several_may_be_named(run: Run) -> None:
    client = FakeClient()
    assert run(client, "retry", "e1", "e2", "e1") == (0, "retried 2 executions\n", "")
    assert sorted(client.sent) == [("e1", 10.0), ("e2", 10.0)]


def test_all_that_failed_of_a_flow_are_found_the_oldest_first(run: Run) -> None:
    client = FakeClient(*FAILED, ("p1", "parked", 0))
    assert run(client, "retry", "--flow", "f", "--dry-run") == (0, "e1\ne2\ne3\n", "3 executions would be retried\n")
    assert client.asked == [("error", "f", choosing.PAGE, {})]
    assert client.sent == []
    assert run(client, "retry", "--flow", "f", "--yes") == (0, "retried 3 executions\n", "")
    assert {execution_id for execution_id, _ in client.sent} == {"e1", "e2", "e3"}


def test_they_may_be_chosen_as_in_a_listing(run: Run) -> None:
    client = FakeClient(*FAILED)
    chosen = ("--error", "HttpError", "--attr", "customer=c7", "--since", "2h ago", "--until", "1h ago")
    code, _, err = run(client, "retry", *chosen)
    assert code == 2
    assert (
        "retry 3 executions of status error with customer=c7 and the error HttpError since 2h ago until 1h ago: give"
        in err
    )
    more = {"error": "HttpError", "attributes": {"customer": "c7"}, "since": "2h ago", "until": "1h ago"}
    assert client.asked == [("error", None, choosing.PAGE, more)]


@pytest.mark.parametrize("verb", ["retry", "cancel"])
def test_those_that_back_off_are_taken_as_they_are_due_and_nobody_else(run: Run, verb: str) -> None:
    client = FakeClient(("w2", "waiting", 9), ("r1", "running", 5), ("w1", "waiting", 7))
    chosen = ("--backing-off", "--flow", "f", "--step", "charge", "--error", "Down")
    code, out, err = run(client, verb, *chosen, "--dry-run")
    done = {"retry": "retried", "cancel": "cancelled"}[verb]
    assert (code, out, err) == (0, "w2\nr1\nw1\n", f"3 executions would be {done}\n"), "in the order of the listing"
    more = {"error": "Down", "backing_off": True, "step": "charge"}
    assert client.asked == [(None, "f", choosing.PAGE, more)], "by no status: what runs beside a backoff is one of them"
    said = run(client, verb, *chosen)[2]
    assert f"{verb} 3 executions of flow f in backoff of step charge with the error Down: give --yes" in said
    assert run(client, verb, *chosen, "--yes") == (0, f"{done} 3 executions\n", "")
    assert run(client, verb, "e1", "--backing-off")[2].endswith("leave them out, or the ids\n")


def test_a_cancel_by_flow_is_of_all_that_have_not_ended(run: Run) -> None:
    client = FakeClient(*FAILED, ("p1", "parked", 0), ("w1", "waiting", 9), ("c1", "completed", 1))
    code, out, _ = run(client, "cancel", "--flow", "f", "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, {"command": "cancel", "ids": ["p1", "w1"]})
    assert run(client, "cancel", "--status", "waiting", "-y")[1] == "cancelled 1 execution\n"


def test_what_is_not_clearly_chosen_is_refused(run: Run) -> None:
    client = FakeClient(*FAILED)
    for arguments, said in (
        ([], "name executions, or give --status, --flow, --error, --attr or --backing-off"),
        (["e1", "--status", "error"], "leave them out, or the ids"),
        (["e1", "--error", "ValueError"], "leave them out, or the ids"),
        (["--attr", "customer"], "--attr takes NAME=VALUE"),
        (["e 1"], "expected an execution id"),
    ):
        code, out, err = run(client, "retry", *arguments)
        assert (code, out, client.sent) == (2, "", [])
        assert said in err


def test_without_a_terminal_many_need_a_yes(run: Run) -> None:
    client = FakeClient(*FAILED)
    code, _, err = run(client, "retry", "--status", "error")
    assert (code, client.sent) == (2, [])
    assert err == (
        "stepwell: this would retry 3 executions of status error: give --yes to do it, or --dry-run to see them\n"
    )


@pytest.mark.threads  # a bar has a thread of its own
@pytest.mark.parametrize(("answer", "done"), [("y", 3), ("n", 0), ("", 0)])
def test_on_a_terminal_a_person_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, done: int) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    asked: list[str] = []

    def confirm(text: str, err: bool) -> bool:
        asked.append(text)
        return answer == "y"

    monkeypatch.setattr(choosing.typer, "confirm", confirm)
    client = FakeClient(*FAILED)
    code, out, err = run(client, "retry", "--status", "error", "--flow", "f")
    assert asked == ["retry 3 executions of status error of flow f?"]
    assert (code, len(client.sent)) == (0, done)
    assert ("retried 3 executions" in out) == bool(done)
    assert ("nothing was done" in err) == (not done)


def test_refusals_are_counted_by_their_reasons(run: Run) -> None:
    client = FakeClient()
    for name in ("e1", "e4"):
        client.refuses[name] = CommandRefused(f"retry of {name} refused: it has ended (completed)")
    client.refuses["e2"] = UnknownExecution("there is no execution 'e2' in this namespace")
    code, out, err = run(client, "retry", "e1", "e2", "e3", "e4")
    assert (code, err) == (1, "")
    assert out == (
        "retried 1 of 4 executions\n"
        "2 refused (e1, e4): it has ended (completed)\n"
        "1 refused (e2): there is no such execution in this namespace\n"
    )
    shown = json.loads(run(client, "retry", "e1", "e2", "e3", "e4", "--json")[1])
    assert (shown["total"], shown["done"], shown["waiting"]) == (4, ["e3"], [])
    assert {"id": "e2", "reason": "there is no execution 'e2' in this namespace"} in shown["refused"]


def test_without_a_worker_nobody_is_waited_for(run: Run) -> None:
    client = FakeClient(living=False)
    code, out, err = run(client, "retry", "e1", "e2")
    assert (code, {timeout for _, timeout in client.sent}) == (0, {0.0})
    assert out == (
        "retried 0 of 2 executions\n2 not applied yet (e1, e2): no worker is running; the retry waits in the inbox\n"
    )
    assert "no worker is running: start one with" in err


def test_none_found_is_said(run: Run) -> None:
    code, out, err = run(FakeClient(), "retry", "--status", "parked", "--yes")
    assert (code, out) == (0, "")
    assert err == "there is no execution of status parked\n"


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), StoreUnreachable("no connection to Redis")])
def test_where_it_can_t_go_on_it_is_said_how_far_it_got(
    run: Run, stop: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 1)  # how many others end before that is noticed is up to the machine
    client = FakeClient()
    ids = [f"e{n}" for n in range(60)]
    client.refuses["e20"] = stop
    code, out, err = run(client, "retry", *ids)
    assert (code, out) == (130 if isinstance(stop, KeyboardInterrupt) else 2, "")
    assert err.splitlines()[0] == "retried 20 of 60 executions; 40 not touched"
    assert [execution_id for execution_id, _ in client.sent] == ids[:21], "nothing is begun any more"


@pytest.mark.threads
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), StoreUnreachable("no connection to Redis")])
def test_what_was_under_way_when_it_stopped_is_told_as_done(
    monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    stopped = threading.Event()

    class Pool(ThreadPoolExecutor):
        def __exit__(self, *error: Any) -> None:
            stopped.set()
            super().__exit__(*error)

    def act(thing: str) -> str:
        if thing == "0":
            raise stop
        stopped.wait(50.0)
        return ""

    def told(tally: Tally) -> str:
        return tally.summary("execution", "retried")

    own, said = Session(), list[str]()
    monkeypatch.setattr(bulk, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Session, "remark", lambda _own, text: said.append(text))
    with pytest.raises(type(stop)):
        do_all(own, "retrying", [str(n) for n in range(60)], act, told)
    left = 60 - (AT_ONCE - 1)
    assert said == [f"retried {AT_ONCE - 1} of 60 executions; {left} not touched"]


@pytest.mark.threads
def test_several_are_under_way_at_a_time_and_no_more() -> None:
    meet = threading.Barrier(AT_ONCE)
    lock = threading.Lock()
    now, most = 0, 0

    def act(_thing: str) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        meet.wait(50.0)
        with lock:
            now -= 1
        return ""

    tally = do_all(Session(), "doing", [str(n) for n in range(3 * AT_ONCE)], act, lambda _: "")
    assert (len(tally.done), most) == (3 * AT_ONCE, AT_ONCE)


class Screen(io.StringIO):
    """A stderr that is a terminal, or not."""

    def __init__(self, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.mark.threads  # a bar has a thread of its own
@pytest.mark.parametrize(("tty", "as_json", "shows"), [(True, False, True), (False, False, False), (True, True, False)])
def test_progress_is_for_people_only(monkeypatch: pytest.MonkeyPatch, tty: bool, as_json: bool, shows: bool) -> None:
    screen = Screen(tty)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress(Session(json=as_json), "retrying", 1_200) as step:
        for _ in range(7):
            step()
    assert ("retrying" in screen.getvalue()) == shows
    assert ("7/1,200" in screen.getvalue()) == shows


def test_of_many_reasons_the_most_frequent_are_told() -> None:
    tally = Tally(20, refused={f"e{n}": f"reason {n % 7}" for n in range(20)})
    first, *lines, last = tally.summary("execution", "retried").splitlines()
    assert (first, lines[0]) == ("retried 0 of 20 executions", "3 refused (e0, e14, e7): reason 0")
    assert len(lines) == REASONS_MAX
    assert last == "5 refused for other reasons"


def test_of_many_with_one_reason_some_are_named() -> None:
    tally = Tally(9, refused={f"e{n}": f"e{n} refused: it runs" for n in range(9)})
    assert tally.summary("execution", "retried").splitlines()[1] == "9 refused (e0, e1, e2, ...): it runs"


def test_an_id_that_is_a_word_of_the_reason_spoils_it_not() -> None:
    tally = Tally(1, refused={"e": "there is no execution 'e' in this namespace: check the id and the server"})
    said = tally.summary("execution", "retried").splitlines()[1]
    assert said == "1 refused (e): there is no such execution in this namespace: check the id and the server"


@pytest.mark.parametrize(
    ("verb", "status"),
    [("retry", each) for each in ("completed", "cancelled", "queued")]
    + [("cancel", each) for each in ("completed", "error", "cancelled")],
)
@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_a_command_that_all_of_a_status_would_refuse_is_wrong_usage(run: Run, verb: str, status: str, how: str) -> None:
    client = FakeClient(("e1", status, 1))
    code, out, err = run(client, verb, "--status", status, how)
    assert (code, out, client.asked, client.sent) == (2, "", [], [])
    assert err.startswith(f"stepwell: {verb} of all {status} ones can do nothing: those ")
    assert ("--status error?" in err) == (verb == "retry")


def test_it_is_the_statuses_in_which_the_rules_refuse_or_nothing_changes() -> None:
    refused = {status for status, act in rules._RETRY.items() if act is rules._retry_refused}
    assert commanding.OF_NO_USE["retry"].keys() == refused
    assert commanding.OF_NO_USE["cancel"].keys() == TERMINAL


def test_a_dry_run_promises_no_more_than_is_known(run: Run) -> None:
    client = FakeClient(("w1", "waiting", 1), ("r1", "running", 1), ("p1", "parked", 1))
    for status, said in (("waiting", "at most 1"), ("running", "at most 1"), ("parked", "1")):
        assert run(client, "retry", "--status", status, "--dry-run")[2] == f"{said} execution would be retried\n"
    assert run(client, "cancel", "--status", "waiting", "--dry-run")[2] == "1 execution would be cancelled\n"
