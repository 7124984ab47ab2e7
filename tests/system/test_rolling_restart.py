"""Two workers under load are restarted one after the other, and nobody who waits for a flow notices."""

from __future__ import annotations

import itertools
import signal
from collections import defaultdict

import pytest
from system.support.stage import HANG_SECONDS, NEVER_ENDING, Stage, WorkerProcess

EXECUTIONS = 24
SETTLED = 10  # steps that each execution gets to run between two restarts


def begun(stage: Stage) -> WorkerProcess:
    """A worker of two shards; how long the machine takes to hand its work over cuts no step of it short."""
    return stage.worker("--shards", "2", "--grace", NEVER_ENDING).ready()


def restarted(stage: Stage, worker: WorkerProcess) -> WorkerProcess:
    """Drain it, and start it again."""
    worker.signal(signal.SIGTERM)
    assert worker.finish() == 0
    return begun(stage)


def all_go_on(stage: Stage) -> None:
    """Wait until each execution has run some more steps."""
    before = counted(stage)
    stage.eventually(
        lambda: all(now - before[each] >= SETTLED for each, now in counted(stage).items()), "all executions go on"
    )


def counted(stage: Stage) -> dict[str, int]:
    """How many steps of each execution have begun."""
    count = dict.fromkeys([f"t{number}" for number in range(EXECUTIONS)], 0)
    for run in stage.journal.runs():
        count[run.execution] += 1
    return count


def longest_pause(stage: Stage) -> float:
    """The most seconds between the beginnings of two steps that followed each other."""
    began: dict[str, list[float]] = defaultdict(list)
    for run in stage.journal.runs():
        began[run.execution].append(run.at)
    return max(later - earlier for each in began.values() for earlier, later in itertools.pairwise(each))


@pytest.mark.pain(35)
def test_a_rolling_restart_fails_nothing_and_doubles_nothing(stage: Stage) -> None:
    with stage.client() as client:
        workers = [begun(stage) for _ in range(2)]
        for number in range(EXECUTIONS):
            client.start("ticking", {"gate": "end"}, f"t{number}")
        all_go_on(stage)
        for place in range(2):
            workers[place] = restarted(stage, workers[place])
            all_go_on(stage)
        stage.eventually(lambda: stage.settled(4), "each of the four shards has its share of the work")
        stage.open("end")
        ticks = {f"t{number}": client.result(f"t{number}", timeout=HANG_SECONDS) for number in range(EXECUTIONS)}
        assert ticks == counted(stage), "each step ran once"
        for execution in ticks:
            shown = client.describe(execution)
            assert shown["status"] == "completed"
            assert all(each["interruptions"] == 0 for each in shown["steps"])
    print(f"longest pause between two steps of an execution: {longest_pause(stage):.2f} s")
