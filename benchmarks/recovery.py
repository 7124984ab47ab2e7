"""How soon does work go on after a kill -9, and how many steps are completed twice?"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.deaths import Scene
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile, shares
from benchmarks.rounds import alternate
from benchmarks.stage import server_facts

__all__ = ["run"]

STEPS = 5
AWAY_SECONDS = 1.0
PATIENCE_SECONDS = 120.0
HOW = """200 flows of five steps of 50 ms, the only worker killed at half of them and started again a second later;
2,000 executions on two shards, one of them killed (three rounds in turns); 200 executions on two workers, all
processes of one stopped as if with their machine. From a journal that the steps write."""


@dataclass(frozen=True, slots=True)
class _Death:
    """Seconds until each execution ran again, in order; of a lone worker the seconds until all was done."""

    seconds: list[float]
    steps: int = 0
    twice: int = 0


def run(scale: Scale, progress: Progress) -> Result:
    """Three deaths: of the only worker, of one of two shards, and of a worker that another one has to miss."""
    rounds = scale.of(3, 1)
    progress.plan(2 * rounds + 1)
    deaths = alternate(
        {
            "the only worker is killed": partial(_only_worker, scale.of(200, 8)),
            "one of two shards is killed": partial(_one_of_two_shards, scale.of(2000, 20)),
        },
        rounds,
        progress,
    )
    progress.part("one of two workers freezes")
    frozen, facts = _one_of_two_workers(scale.of(200, 8))
    alone: list[_Death] = deaths["the only worker is killed"]
    shards: list[_Death] = deaths["one of two shards is killed"]
    rows = [
        Row.of(
            "the only worker is killed at half and started again: until all is done",
            "s",
            [each.seconds[-1] for each in alone],
            "<= 1.5",
        ),
        Row.of("steps completed twice", f"of {alone[0].steps}", [each.twice for each in alone], "<= 5"),
        Row.of("killed shard: until the first of its executions runs again", "s", [_first(x) for x in shards], "<= 1"),
        Row.of("killed shard: until half of them run again", "s", [percentile(x.seconds, 0.5) for x in shards]),
        Row.of("killed shard: until the last one runs again", "s", [x.seconds[-1] for x in shards]),
        Row.of("killed shard: executions that ran on it", "executions", [len(x.seconds) for x in shards]),
        Row("one of two workers freezes: until the first of its executions runs again", _first(frozen), "s", "<= 11"),
        Row("frozen worker: until the last one runs again", frozen.seconds[-1], "s"),
    ]
    title = "How soon do a killed shard's executions run again?"
    lines = {f"round {number}": each.seconds for number, each in enumerate(shards, 1)}
    chart = shares("shard", title, "seconds after the kill", lines)
    return Result("recovery", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))


def _first(death: _Death) -> float:
    return death.seconds[0]


def _only_worker(flows: int) -> _Death:
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
    return _Death([seconds], flows * STEPS, sum(1 for count in ends.values() if count > 1))


def _one_of_two_shards(flows: int) -> _Death:
    """Half of the executions run on each of two shards, one second a step; one shard is killed."""
    with Scene() as scene:
        scene.workers.start(shards=2, max_running=2 * flows)
        _wait(scene.settled, "both shards own what is for them")
        scene.start("many_naps", flows, step_seconds=1.0)
        _wait(lambda: scene.journal.executions() == flows, "all executions run")
        victim = scene.first_owner()
        return _Death(_kill_and_watch(scene, victim, lambda: os.kill(victim, signal.SIGKILL)))


def _one_of_two_workers(flows: int) -> tuple[_Death, dict[str, str]]:
    """All processes of a worker stop, as with their machine, and nobody says so: their leases have to lapse."""
    with Scene() as scene:
        workers = [scene.workers.start(shards=1) for _ in range(2)]
        _wait(scene.settled, "both workers own what is for them")
        scene.start("many_naps", flows, step_seconds=0.5)
        _wait(lambda: scene.journal.executions() == flows, "all executions run")
        victim = scene.first_owner()
        [doomed] = [worker for worker in workers if victim in worker.shards()]
        facts = server_facts(scene.redis) | {"durability": "relaxed"}
        return _Death(_kill_and_watch(scene, victim, doomed.freeze)), facts


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
