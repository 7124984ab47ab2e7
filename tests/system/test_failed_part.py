"""A part of a shard fails by a bug, in a real worker: its shard is started anew, and what ran is cut short once."""

from __future__ import annotations

import re

import pytest
from system.support.stage import HANG_SECONDS, SUPPORT, Stage


@pytest.mark.pain(35)
@pytest.mark.parametrize("part", ["stepwell-mirror", "stepwell-inbox", "stepwell-leases", "dispatcher"])
def test_what_runs_as_a_part_of_its_shard_fails_is_interrupted_once_and_runs_again_when_that_has_ended(
    stage: Stage, part: str
) -> None:
    worker = stage.worker("--shards", "2", flows=SUPPORT / "buggy.py").ready()
    stage.eventually(stage.settled, "both own their shares")
    with stage.client() as client:
        client.start("held", {}, "H")
        stage.ran("H", "alone")
        [first] = stage.journal.runs("H")
        stage.open(f"fail-{part}-{first.pid}")
        client.signal("H", "hello")  # there is something to do for each part; whoever comes next may be who does it
        stage.ran("H", "alone", 2)
        stage.open("go")
        assert client.result("H", timeout=HANG_SECONDS) == "done"
        [shown] = client.describe("H")["steps"]
    assert (shown["interruptions"], shown["drains"]) == (1, 0)
    assert [attempt["n"] for attempt in shown["attempts"]] == [1]
    _, second = stage.journal.runs("H")
    assert (first.attempt, second.attempt) == (1, 1)
    assert first.key == second.key
    assert not (stage.gates / "beside").exists(), "both ran at once"
    worker.counts("stepwell_shards", 2, state="running")
    worker.counts("stepwell_shard_restarts_total", 1)
    worker.counts("stepwell_step_attempts_total", 1, step="alone", outcome="interrupted")
    failed = f"{part} failed: RuntimeError: a bug, on purpose"
    assert re.search(rf"CRITICAL {failed}", worker.err)
    [shard] = re.findall(rf"shard (\S+) died: {failed}", worker.err)
    assert re.search(rf"shard {shard}: it died; .*steps cut short: 1; at work: alone of H \(attempt 1\)", worker.err)
    assert f"shard {shard} is started again" in worker.err
