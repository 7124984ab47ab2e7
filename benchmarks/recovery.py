"""How soon does work go on after a kill -9, and how many steps are completed twice?"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.deaths import Scene
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile

__all__ = ["run"]

STEPS = 5
AWAY_SECONDS = 1.0
PATIENCE_SECONDS = 120.0


def run(scale: Scale, progress: Progress) -> Result:
    """Three deaths: of the only worker, of one of two shards, and of a worker that another one has to miss."""
    rows = [
        *_only_worker(scale.of(200, 8)),
        *_one_of_two_shards(scale.of(2000, 20)),
        *_one_of_two_workers(scale.of(200, 8)),
    ]
    return Result("recovery", (__doc__ or "").strip(), rows)


def _only_worker(flows: int) -> list[Row]:
    """Flows of five steps of 50 ms; the worker is killed when half of the steps are done, and started again."""
    with Scene() as scene:
        worker = scene.workers.start(shards=1)
        scene.start("five_naps", flows, step_seconds=0.05)
        _wait(lambda: scene.journal.ended() >= flows * STEPS // 2, "half of the steps are done")
        worker.kill()
        time.sleep(AWAY_SECONDS)
        began = time.monotonic()
        scene.workers.start(shards=1, wait=False)
        _wait(lambda: scene.count("completed") == flows, "all flows complete")
        seconds = max(line.at for line in scene.journal.lines()) - began
        ends = Counter((line.execution, line.path) for line in scene.journal.lines() if line.what == "ended")
    twice = sum(1 for count in ends.values() if count > 1)
    return [
        Row("the only worker is killed at half and started again: until all is done", seconds, "s", "<= 1.5"),
        Row("steps completed twice", twice, f"of {flows * STEPS}", "<= 5"),
    ]


def _one_of_two_shards(flows: int) -> list[Row]:
    """Half of the executions run on each of two shards, one second a step; one shard is killed."""
    with Scene() as scene:
        scene.workers.start(shards=2, max_running=2 * flows)
        _wait(lambda: len(set(scene.owners().values())) == 2, "both shards own partitions")
        scene.start("many_naps", flows, step_seconds=1.0)
        _wait(lambda: scene.journal.executions() == flows, "all executions run")
        victim = min(scene.owners().values())
        back = _kill_and_watch(scene, victim, lambda: os.kill(victim, signal.SIGKILL))
    return [
        Row("one of two shards is killed: executions that ran on it", len(back), ""),
        Row("killed shard: until the first of them runs again", back[0], "s", "<= 1"),
        Row("killed shard: until half of them run again", percentile(back, 0.5), "s"),
        Row("killed shard: until the last one runs again", back[-1], "s"),
    ]


def _one_of_two_workers(flows: int) -> list[Row]:
    """All processes of a worker stop, as with their machine, and nobody says so: their leases have to lapse."""
    with Scene() as scene:
        doomed = scene.workers.start(shards=1)
        scene.workers.start(shards=1)
        _wait(lambda: len(set(scene.owners().values())) == 2, "both workers own partitions")
        scene.start("many_naps", flows, step_seconds=0.5)
        _wait(lambda: scene.journal.executions() == flows, "all executions run")
        (victim,) = doomed.shards()
        back = _kill_and_watch(scene, victim, doomed.freeze)
    return [
        Row("one of two workers freezes: until the first of its executions runs again", back[0], "s", "<= 11"),
        Row("frozen worker: until the last one runs again", back[-1], "s"),
    ]


def _kill_and_watch(scene: Scene, victim: int, kill: Callable[[], None]) -> list[float]:
    """Seconds from the kill until each execution of that process begins a step again, in order."""
    mine = {each for each, pid in scene.pid_of_executions().items() if pid == victim}
    killed = time.monotonic()
    kill()

    def back() -> dict[str, float]:
        found: dict[str, float] = {}
        for line in scene.journal.lines():
            if line.what == "began" and line.at > killed and line.pid != victim and line.execution in mine:
                found.setdefault(line.execution, line.at - killed)
        return found

    _wait(lambda: len(back()) == len(mine), "all executions run again")
    return sorted(back().values())


def _wait(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {PATIENCE_SECONDS:g} s still not: {what}")
        time.sleep(0.02)
