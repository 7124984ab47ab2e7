"""Two workers on the same data: one works, one stands by, takes over, and a zombie does no harm."""

from __future__ import annotations

import signal

import pytest
from system.support.stage import Stage, WorkerProcess

from stepwell import Client

HOUR_MS = 3_600_000


def two_workers(stage: Stage, client: Client) -> tuple[WorkerProcess, WorkerProcess]:
    first = stage.worker().ready()
    second = stage.worker().ready()
    stage.eventually(lambda: len(client.workers()) == 2, "both have a heartbeat")
    return first, second


def owners(stage: Stage) -> set[str]:
    """The workers that hold leases."""
    with stage.server() as server:
        return {server.get(key).decode().split("|")[0] for key in server.scan_iter("*:lease")}


def row_of(stage: Stage, execution: str) -> dict[bytes, bytes]:
    with stage.server() as server:
        [key] = server.scan_iter(f"*:x:{execution}")
        return dict(server.hgetall(key))


def test_the_second_stands_by(stage: Stage) -> None:
    with stage.client() as client:
        first, second = two_workers(stage, client)
        for number in range(20):
            client.start("chain", {}, f"c{number}")
        assert [client.result(f"c{number}", timeout=60) for number in range(20)] == [3] * 20
        assert {run.pid for run in stage.journal.runs()} == {first.shard}
        assert len(owners(stage)) == 1
        assert second.page("healthz")[0] == 200


def test_the_second_takes_over_at_once_when_the_first_is_killed(stage: Stage) -> None:
    with stage.client() as client:
        first, second = two_workers(stage, client)
        client.start("holding", {"gate": "go"}, "h1")
        stage.ran("h1", "held")
        first.kill()
        with stage.server() as server:
            for lease in server.scan_iter("*:lease"):
                server.pexpire(lease, HOUR_MS, xx=True)  # so that nobody could wait for its end
        stage.ran("h1", "held", times=2)
        stage.open("go")
        assert client.result("h1", timeout=60) == [second.shard, "after!"]
    assert stage.journal.attempts("h1", "held") == [1, 1]


def test_the_second_takes_over_when_the_first_is_drained(stage: Stage) -> None:
    with stage.client() as client:
        first, second = two_workers(stage, client)
        client.start("holding", {"gate": "go"}, "h1")
        client.start("sleeper", {}, "s1")
        stage.ran("h1", "held")
        first.signal(signal.SIGTERM)
        first.wait_for("nothing new starts")
        stage.open("go")
        assert first.finish() == 0
        assert client.result("h1", timeout=60) == [first.shard, "after!"]
        assert client.cancel("s1", timeout=60).applied
        assert [step["interruptions"] for step in client.describe("h1")["steps"]] == [0, 0]
    assert [run.pid for run in stage.journal.runs("h1")] == [first.shard, second.shard]


@pytest.mark.pain(40)
@pytest.mark.parametrize("lapse", ["in the server only", "for both"])
def test_a_zombie_writes_nothing_and_runs_nothing_twice(stage: Stage, lapse: str) -> None:
    with stage.client() as client:
        first, second = two_workers(stage, client)
        client.start("holding", {"gate": "go"}, "h1")
        stage.ran("h1", "held")
        first.freeze()
        if lapse == "in the server only":
            # The zombie wakes up within what it takes for its lease: the store alone must refuse it.
            with stage.server() as server:
                server.delete(*server.scan_iter("*:lease"))
        stage.ran("h1", "held", times=2)
        stage.open(f"go-{second.shard}")
        assert client.result("h1", timeout=60) == [second.shard, "after!"]
        row, runs = row_of(stage, "h1"), stage.journal.runs()

        stage.open(f"go-{first.shard}")
        first.thaw()
        stage.eventually(lambda: first.metric("stepwell_fenced_total") > 0, "the zombie is fenced and counts it")
        stage.eventually(lambda: len(client.workers()) == 2, "the zombie stands by")
        # It still reads its step's end now, at the latest; and it works again when it is needed.
        second.signal(signal.SIGTERM)
        assert second.finish() == 0
        client.start("chain", {}, "c1")
        assert client.result("c1", timeout=60) == 3
        assert row_of(stage, "h1") == row
        assert stage.journal.runs("h1") == runs
        assert {run.pid for run in stage.journal.runs("c1")} == {first.shard}
    assert [run.pid for run in runs] == [first.shard, second.shard, second.shard]
    assert "Traceback" not in first.out + first.err
