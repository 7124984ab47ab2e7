"""A worker that is told to stop: running steps finish, sleepers hold nothing up, and nothing is billed."""

from __future__ import annotations

import signal

import pytest
from system.support.stage import HANG_SECONDS, NEVER_ENDING, Stage, WorkerProcess


def ends_quietly(worker: WorkerProcess) -> None:
    assert worker.finish() == 0
    assert "Traceback" not in worker.out + worker.err


@pytest.mark.pain(35)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("flow", "path"), [("holding", "held"), ("holding_sync", "held_sync")])
def test_a_running_step_finishes_and_is_recorded(stage: Stage, number: signal.Signals, flow: str, path: str) -> None:
    worker = stage.worker("--grace", NEVER_ENDING).ready()
    with stage.client() as client:
        client.start(flow, {"gate": "go"}, "h1")
        stage.ran("h1", path)
        worker.signal(number)
        worker.wait_for("nothing new starts")
        stage.open("go")
        ends_quietly(worker)

        first, second = client.describe("h1")["steps"]
        assert (first["status"], first["result"], first["interruptions"]) == ("completed", worker.shard, 0)
        assert second["attempts"] == []
        assert stage.journal.attempts("h1", "quick") == []  # nothing new starts

        stage.worker().ready()
        assert client.result("h1", timeout=HANG_SECONDS) == [worker.shard, "after!"]
        steps = client.describe("h1")["steps"]
        assert client.dead_letters() == []
    assert [step["interruptions"] for step in steps] == [0, 0]
    assert stage.journal.attempts("h1", path) == [1]
    assert stage.journal.attempts("h1", "quick") == [1]


@pytest.mark.pain(35)
def test_sleepers_and_backoffs_do_not_hold_it_up(stage: Stage) -> None:
    worker = stage.worker("--grace", NEVER_ENDING).ready()
    with stage.client() as client:
        client.start("sleeper", {}, "s1")
        client.start("rester", {}, "r1")
        stage.eventually(lambda: client.describe("s1")["status"] == "waiting", "s1 sleeps")
        stage.eventually(lambda: client.describe("r1")["status"] == "waiting", "r1 backs off")
        before = [client.describe(each) for each in ("s1", "r1")]
        worker.signal(signal.SIGTERM)
        ends_quietly(worker)
        stage.worker().ready()
        # A command is answered by whoever has the execution in hand: the successor has.
        assert client.signal("s1", "anything").applied
        assert client.signal("r1", "anything").applied
        after = [client.describe(each) for each in ("s1", "r1")]
        assert client.dead_letters() == []
    assert [each["open"] for each in after] == [each["open"] for each in before]
    assert stage.journal.attempts("r1", "resting") == [1]


@pytest.mark.pain(35)
@pytest.mark.parametrize(
    ("flow", "path"),
    [("holding", "held"), ("holding_sync", "held_sync"), ("holding_elsewhere", "held_elsewhere")],
)
def test_an_attempt_cut_short_at_the_end_of_the_grace_time_is_not_billed(stage: Stage, flow: str, path: str) -> None:
    worker = stage.worker("--grace", "0.1").ready()
    with stage.client() as client:
        client.start(flow, {"gate": "go"}, "h1")
        stage.ran("h1", path)
        worker.signal(signal.SIGTERM)
        ends_quietly(worker)
        assert "not all steps finished in time (left: 1)" in worker.err
        assert f"execution=h1 flow={flow} step={path} path={path} attempt=1" in worker.err
        cut = client.describe("h1")
        assert cut["steps"][0]["attempts"] == []

        successor = stage.worker().ready()
        stage.ran("h1", path, times=2)
        stage.open("go")
        assert client.result("h1", timeout=HANG_SECONDS) == [successor.shard, "after!"]
        step = client.describe("h1")["steps"][0]
        assert client.dead_letters() == []
    assert step["interruptions"] == 1
    assert stage.journal.attempts("h1", path) == [1, 1]
    assert [attempt["n"] for attempt in step["attempts"]] == [1]
    assert len({run.key for run in stage.journal.runs("h1", path)}) == 1
    assert successor.metric("stepwell_step_attempts_total", outcome="interrupted") == 0, "told by who left"


@pytest.mark.pain(35)
@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)])
def test_a_second_signal_ends_it_at_once(stage: Stage, first: signal.Signals, second: signal.Signals) -> None:
    worker = stage.worker("--grace", NEVER_ENDING).ready()
    with stage.client() as client:
        client.start("holding_sync", {"gate": "go"}, "h1")
        stage.ran("h1", "held_sync")
        worker.signal(first)
        worker.wait_for("nothing new starts")
        worker.signal(second)
        assert worker.finish() == 128 + second
        assert "Traceback" not in worker.out + worker.err
        stage.open("go")
        successor = stage.worker().ready()
        assert client.result("h1", timeout=HANG_SECONDS) == [successor.shard, "after!"]
        assert client.dead_letters() == []


@pytest.mark.pain(29, 35)
def test_commands_that_come_while_it_drains_wait_for_its_successor(stage: Stage) -> None:
    worker = stage.worker("--grace", NEVER_ENDING).ready()
    with stage.client() as client:
        client.start("holding", {"gate": "go"}, "h1")
        client.start("sleeper", {}, "s1")
        stage.ran("h1", "held")
        stage.eventually(lambda: client.describe("s1")["status"] == "waiting", "s1 sleeps")
        worker.signal(signal.SIGTERM)
        worker.wait_for("nothing new starts")
        cancelled = client.cancel("s1", timeout=0)
        late = client.start("chain", {"words": 2}, "c1")
        stage.open("go")
        ends_quietly(worker)
        stage.worker().ready()
        assert client.result(late, timeout=HANG_SECONDS) == 2
        stage.eventually(lambda: client.describe("s1")["status"] == "cancelled", "s1 is cancelled")
        assert cancelled.applied in (None, True)
        assert client.dead_letters() == []
    assert stage.journal.attempts("c1", "quick") == [1]
