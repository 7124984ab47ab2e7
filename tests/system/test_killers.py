"""What kills its process in a real worker: it is found, named and set apart, and innocents finish."""

from __future__ import annotations

import re
from typing import Any

import pytest
from system.support.stage import HANG_SECONDS, SUPPORT, Stage, WorkerProcess

from stepwell import Client, ExecutionFailed
from stepwell.core.status import PARK_KILLS_SHARD

KILLERS = SUPPORT / "killers.py"
INNOCENTS = 200


def worker_of(stage: Stage) -> WorkerProcess:
    return stage.worker("--shards", "2", flows=KILLERS).ready()


def interruptions(client: Client, *executions: str) -> int:
    """How many were billed to the steps of these executions."""
    return sum(step["interruptions"] for each in executions for step in client.describe(each)["steps"])


def shown_by_boxes(worker: WorkerProcess) -> int:
    """How many steps the black boxes of dead shards showed as running."""
    return sum(int(number) for number in re.findall(r"steps cut short: (\d+)", worker.err))


def suspects(stage: Stage) -> dict[str, Any]:
    """What is held against anybody, over all partitions."""
    server = stage.server()
    try:
        return {name: value for key in server.scan_iter("*:suspects") for name, value in server.hgetall(key).items()}
    finally:
        server.close()


@pytest.mark.pain(8)
@pytest.mark.parametrize("sync", [False, True], ids=["exits", "crashes on a thread"])
def test_a_step_that_kills_its_process_is_named_and_innocents_are_not_billed(stage: Stage, sync: bool) -> None:
    worker = worker_of(stage)
    path = "killer_on_a_thread" if sync else "killer"
    with stage.client() as client:
        innocents = [client.start("innocent", {}, f"I{number}") for number in range(INNOCENTS)]
        stage.ran("I0", "works")
        client.start("kills", {"sync": sync}, "K")
        with pytest.raises(ExecutionFailed) as failed:
            client.result("K", timeout=HANG_SECONDS)
        for each in innocents:
            assert client.result(each, timeout=HANG_SECONDS) == 3
        error = failed.value.error
        assert error["failed_step"]["path"] == path
        assert re.search(r"exit code 137|signal 11", error["message"])
        # It took its shard along once; from then on each of its crashes was a failed attempt, and no more.
        [shown] = client.describe("K")["steps"]
        assert [attempt["n"] for attempt in shown["attempts"]] == [1, 2, 3]
        assert (shown["interruptions"], stage.journal.attempts("K", path)) == (1, [1, 1, 2, 3])
        assert len({run.key for run in stage.journal.runs("K")}) == 1
        worker.wait_for(f"at work: {path} of K (attempt 1)")
        billed = interruptions(client, *innocents)
        stage.eventually(
            lambda: shown_by_boxes(worker) - 1 == billed, f"{billed} of them were cut short, and it is said"
        )
    worker.counts("stepwell_shards", 2, state="running")
    assert worker.metric("stepwell_shard_restarts_total") == 1
    stage.eventually(lambda: suspects(stage) == {}, "nothing is held against anybody")


@pytest.mark.pain(8)
@pytest.mark.parametrize("flow", ["hangs", "crashes"])
def test_a_flow_that_kills_its_shard_when_it_is_driven_is_parked_and_named(stage: Stage, flow: str) -> None:
    worker = worker_of(stage)
    with stage.client() as client:
        innocents = [client.start("innocent", {"steps": 20}, f"I{number}") for number in range(INNOCENTS)]
        stage.ran("I0", "works")
        client.start(flow, {}, "K")
        stage.eventually(lambda: client.describe("K")["status"] == "parked", "it is parked", seconds=2 * HANG_SECONDS)
        for each in innocents:
            assert client.result(each, timeout=HANG_SECONDS) == sum(range(20))
        error = client.describe("K")["error"]
        assert error["type"] == PARK_KILLS_SHARD
        expected = r"it hung for \d\d" if flow == "hangs" else "Segmentation fault at "
        assert re.match(f"3 shards died while it was loaded or driven; the last: {expected}", error["message"])
        worker.counts("stepwell_shards", 2, state="running")
        assert worker.metric("stepwell_shard_restarts_total") == 3
        # It was certain who it was: nobody else was billed, or held to be a suspect.
        assert interruptions(client, *innocents) == 0
        assert suspects(stage) == {}
        assert "crashes its shard" in stage.command("show", "K", *stage.where).stdout
        stage.open("mended")
        assert stage.command("retry", "K", *stage.where).returncode == 0
        assert client.result("K", timeout=HANG_SECONDS) == "well!"
