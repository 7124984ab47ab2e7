"""Two workers on the same data share it; one takes over from the other, and a zombie does no harm."""

from __future__ import annotations

import signal

import pytest
import redis
from system.support.stage import HANG_SECONDS, NEVER_ENDING, Stage, WorkerProcess

from stepwell import Client

HOUR_MS = 3_600_000


def two_workers(stage: Stage, client: Client) -> tuple[WorkerProcess, WorkerProcess]:
    """Two workers, each of which holds its share."""
    first = stage.worker("--grace", NEVER_ENDING).ready()
    second = stage.worker("--grace", NEVER_ENDING).ready()
    stage.eventually(lambda: len(client.workers()) == 2, "both have a heartbeat")
    stage.eventually(stage.settled, "both hold what is for each of them, so that nothing is about to move")
    return first, second


def holding(stage: Stage, client: Client) -> tuple[WorkerProcess, WorkerProcess]:
    """The worker that runs the held step of h1, and the other one."""
    workers = two_workers(stage, client)
    client.start("holding", {"gate": "go"}, "h1")
    stage.ran("h1", "held")
    [run] = stage.journal.runs("h1")
    first, second = workers if run.pid == workers[0].shard else reversed(workers)
    return first, second


def leases(server: redis.Redis) -> list[bytes]:
    """All leases, as they are written."""
    return [lease for lease in server.mget(list(server.scan_iter("*:lease")) or ["none"]) if lease]


def held_by(stage: Stage, worker: WorkerProcess) -> int:
    """How many partitions the shard of that worker holds."""
    with stage.server() as server:
        return sum(f",{worker.shard},".encode() in lease for lease in leases(server))


def row_of(stage: Stage, execution: str) -> dict[bytes, bytes]:
    with stage.server() as server:
        [key] = server.scan_iter(f"*:x:{execution}")
        return dict(server.hgetall(key))


def test_both_work_and_no_step_runs_twice(stage: Stage) -> None:
    with stage.client() as client:
        first, second = two_workers(stage, client)
        for number in range(40):
            client.start("chain", {}, f"c{number}")
        assert [client.result(f"c{number}", timeout=HANG_SECONDS) for number in range(40)] == [3] * 40
        assert {run.pid for run in stage.journal.runs()} == {first.shard, second.shard}
        assert len(stage.journal.runs()) == len({(run.execution, run.path) for run in stage.journal.runs()})
        stage.eventually(lambda: second.page("healthz")[0] == 200, "it is well")


def test_the_second_takes_over_at_once_when_the_first_is_killed(stage: Stage) -> None:
    with stage.client() as client:
        first, second = holding(stage, client)
        first.kill()
        with stage.server() as server:
            for lease in server.scan_iter("*:lease"):
                server.pexpire(lease, HOUR_MS, xx=True)  # so that nobody could wait for its end
        stage.ran("h1", "held", times=2)
        stage.open("go")
        assert client.result("h1", timeout=HANG_SECONDS) == [second.shard, "after!"]
    assert stage.journal.attempts("h1", "held") == [1, 1]


def test_the_second_takes_over_when_the_first_is_drained(stage: Stage) -> None:
    with stage.client() as client:
        first, second = holding(stage, client)
        client.start("sleeper", {}, "s1")
        first.signal(signal.SIGTERM)
        first.wait_for("others take over")
        stage.eventually(lambda: held_by(stage, first) == 1, "all is handed over but what runs")
        stage.open("go")
        assert first.finish() == 0
        assert client.result("h1", timeout=HANG_SECONDS) == [first.shard, "after!"]
        assert client.cancel("s1", timeout=HANG_SECONDS).applied
        assert [step["interruptions"] for step in client.describe("h1")["steps"]] == [0, 0]
    assert [run.pid for run in stage.journal.runs("h1")] == [first.shard, second.shard]


@pytest.mark.pain(40)
@pytest.mark.parametrize("lapse", ["in the server only", "for both"])
def test_a_zombie_writes_nothing_and_runs_nothing_twice(stage: Stage, lapse: str) -> None:
    with stage.client() as client:
        first, second = holding(stage, client)
        first.freeze()
        if lapse == "in the server only":
            # The zombie wakes up within what it takes for its lease: the store alone must refuse it.
            with stage.server() as server:
                server.delete(*server.scan_iter("*:lease"))
        stage.ran("h1", "held", times=2)
        stage.open(f"go-{second.shard}")
        assert client.result("h1", timeout=HANG_SECONDS) == [second.shard, "after!"]
        row, runs = row_of(stage, "h1"), stage.journal.runs()

        stage.open(f"go-{first.shard}")
        first.thaw()

        def noticed() -> bool:
            # The store refuses it, or, where its own lease has lapsed by now, it sees that before it writes.
            return first.metric("stepwell_fenced_commits_total") > 0 or "holds what is not ours any more" in first.err

        stage.eventually(noticed, "the zombie is fenced")
        stage.eventually(lambda: len(client.workers()) == 2, "the zombie is back")
        # It still reads its step's end now, at the latest; and it works again when it is needed.
        second.signal(signal.SIGTERM)
        assert second.finish() == 0
        client.start("chain", {}, "c1")
        assert client.result("c1", timeout=HANG_SECONDS) == 3
        assert row_of(stage, "h1") == row
        assert stage.journal.runs("h1") == runs
        assert {run.pid for run in stage.journal.runs("c1")} == {first.shard}, "it is needed"
    assert [run.pid for run in runs] == [first.shard, second.shard, second.shard]
    assert "Traceback" not in first.out + first.err
