"""A worker is killed at every commit, before it is sent and after it is answered: nothing that is recorded is lost.

The cases share one embedded server, and so one secret: an execution of one id has the same tokens in each namespace.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from system.support.journal import Run
from system.support.stage import HANG_SECONDS, SUPPORT, Stage, WorkerProcess

from stepwell import Client
from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND
from stepwell.core.ownership import REVS_OF_A_GRANT
from stepwell.core.status import PARKED, TERMINAL
from stepwell.store.embedded import EmbeddedServer

ID = "trip"
PARTITIONS = 2
AT_ONCE = 4
RESULT = {
    "greeting": "hello!",
    "tries": [3, 2, 2],
    "words": ["left!", "last!"],
    "approval": {"by": "Ada"},
    "failure": "sold out after 2",
}
ATTEMPTS = {
    "quick": 1,
    "shaky": 3,
    "gather.0/quick": 1,
    "gather.1/shaky": 2,
    "gather.2/shaky_sync": 2,
    "doomed": 2,
    "quick#2": 1,
}
BASE_SECONDS = {"shaky": 0.05, "gather.1/shaky": 0.05, "gather.2/shaky_sync": 0.6, "doomed": 0.05}
SLEEP_SECONDS = 0.6
CLOCKS_SECONDS = 0.3
"""By so much two workers may differ in what they take for the server's time: each asks once, on a busy machine."""


@dataclass
class Reference:
    """What happens when nothing happens."""

    commits: int
    keys: dict[str, str]


class Trip:
    """One execution of `journey` in a namespace of its own."""

    def __init__(self, stage: Stage, namespace: str) -> None:
        self._stage = stage
        self._namespace = namespace
        self.client = Client(data_dir=stage.data, namespace=namespace, partitions=PARTITIONS)
        self._signalled = False
        self.due: dict[tuple[str, int], int] = {}

    def worker(self, point: str = "", number: int = 0) -> WorkerProcess:
        command = [sys.executable, str(SUPPORT / "crash_worker.py"), str(self._stage.data), self._namespace]
        return self._stage.start([*command, str(PARTITIONS), point, str(number)])

    def look(self) -> dict[str, Any]:
        """The execution now. Sends the signal when it is waited for, and checks that nothing is put off."""
        seen = self.client.describe(ID)
        for path, op in seen["open"].items():
            if op["kind"] == "signal" and not self._signalled:
                self._signalled = True
                self.client.signal(ID, "approval", {"by": "Ada"}, timeout=0)
            if op["due_at"] is not None:
                first = self.due.setdefault((path, op["attempt"]), op["due_at"])
                assert op["due_at"] <= first, f"{path}: due {op['due_at'] - first} ms later than recorded"
        return seen

    def until_dead(self, worker: WorkerProcess) -> None:
        """Go on until the worker has killed itself."""
        deadline = time.monotonic() + HANG_SECONDS
        while worker.process.poll() is None:
            assert time.monotonic() < deadline, f"never came to its failpoint:\n{worker.err}"
            self.look()
            time.sleep(0.01)
        assert worker.process.returncode == -signal.SIGKILL, worker.err

    def until_ended(self, worker: WorkerProcess) -> dict[str, Any]:
        """Go on until the execution has ended."""
        deadline = time.monotonic() + HANG_SECONDS
        while (seen := self.look())["status"] not in TERMINAL:
            assert worker.process.poll() is None, worker.err
            assert seen["status"] != PARKED, seen["error"]
            assert time.monotonic() < deadline, f"does not end: {json.dumps(seen['open'])}\n{worker.err}"
            time.sleep(0.01)
        return seen


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("crashes") / "data"
    with EmbeddedServer.use(data):
        yield data


@pytest.fixture
def crashes(stage: Stage, server: Path) -> Stage:
    stage.data = server
    return stage


@pytest.mark.pain(7, 21, 25, 30)
def test_every_commit_may_be_the_last_one_of_a_worker(crashes: Stage) -> None:
    reference = run_undisturbed(crashes)
    cases = [(point, number) for number in range(1, reference.commits + 1) for point in (BEFORE_SEND, AFTER_REPLY)]
    print(f"{reference.commits} commits, {len(cases)} kills")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = [found for found in pool.map(lambda case: run_killed(crashes, reference, *case), cases) if found]
    assert not problems, "\n".join(problems)
    assert len(cases) == 40


def run_undisturbed(stage: Stage) -> Reference:
    trip = Trip(stage, "reference")
    trip.client.start("journey", {"word": "hello"}, ID)
    worker = trip.worker()
    seen = trip.until_ended(worker)
    worker.signal(signal.SIGTERM)
    assert worker.finish() == 0
    counts = json.loads(worker.out)
    assert seen["result"] == RESULT
    assert {step["path"]: len(step["attempts"]) for step in seen["steps"]} == ATTEMPTS
    # The creation is the client's; every other revision is one commit that the worker was answered.
    commits = counts[AFTER_REPLY]
    assert commits == nth(seen["rev"]) - 1
    assert counts[BEFORE_SEND] == commits or sent_again(worker)
    retries = sum(ATTEMPTS.values()) - len(ATTEMPTS)
    assert commits == 1 + sum(ATTEMPTS.values()) + retries + 2  # begin, ends, due times; sleep, signal
    stage.journal.file.unlink()
    trip.client.close()
    return Reference(commits, {step["path"]: step["key"] for step in seen["steps"]})


def sent_again(worker: WorkerProcess) -> bool:
    """Whether it sent a commit more than once: a busy machine's server may answer later than a worker waits."""
    return "Redis does not acknowledge writes" in worker.err


def nth(rev: int) -> int:
    """The how manieth revision of its row that is, if one grant wrote all of them; its creation is the first."""
    return rev if rev < REVS_OF_A_GRANT else rev % REVS_OF_A_GRANT + 2


def run_killed(stage: Stage, reference: Reference, point: str, number: int) -> str:
    """What is wrong after a kill there; empty if nothing is."""
    name = f"{point.replace('.', '-')}-{number}"
    own = stage.beside(name)
    trip = Trip(own, name)
    try:
        trip.client.start("journey", {"word": "hello"}, ID)
        killed = trip.worker(point, number)
        trip.until_dead(killed)
        recorded, before = trip.client.describe(ID), own.journal.runs()
        rev, sent = nth(recorded["rev"]), number if point == BEFORE_SEND else number + 1
        assert rev == sent or (rev < sent and sent_again(killed))
        successor = trip.worker()
        ended = trip.until_ended(successor)
        successor.kill()
        check(reference, recorded, before, ended, own.journal.runs())
        assert trip.client.dead_letters() == []
    except AssertionError as error:
        return f"{name}: {error}"
    finally:
        trip.client.close()
    return ""


def check(
    reference: Reference, recorded: dict[str, Any], before: list[Run], ended: dict[str, Any], runs: list[Run]
) -> None:
    """`recorded` and `before` are what the row and the journal said when the first worker was dead."""
    after = runs[len(before) :]
    assert ended["result"] == RESULT
    assert {step["path"]: len(step["attempts"]) for step in ended["steps"]} == ATTEMPTS
    assert {step["path"]: step["key"] for step in ended["steps"]} == reference.keys
    assert {(run.path, run.key) for run in runs} == set(reference.keys.items())
    final = {step["path"]: step["attempts"] for step in ended["steps"]}
    for step in recorded["steps"]:
        again = [run.attempt for run in after if run.path == step["path"]]
        done = [attempt["n"] for attempt in step["attempts"]]
        assert not set(again) & set(done), f"{step['path']}: attempts {again} after {done} were recorded"
        if step["finished_at"] is not None:
            assert again == [], f"{step['path']} was recorded and ran again"
        # What was recorded of failed attempts, due times among it, stays as it was.
        assert final[step["path"]][: len(done)] == step["attempts"]
    for path, attempts in ATTEMPTS.items():
        ran = [run.attempt for run in runs if run.path == path]
        assert sorted(set(ran)) == list(range(1, attempts + 1)), f"{path}: attempts {ran}"
        assert len(ran) <= attempts + 1, f"{path}: one kill interrupts one attempt, but it ran {ran}"
    check_delays(runs)


def check_delays(runs: list[Run]) -> None:
    """No attempt, and nothing after the sleep, began early."""
    last = {(run.path, run.attempt): run for run in runs}
    first = {(run.path, run.attempt): run for run in reversed(runs)}
    for (path, attempt), run in first.items():
        if attempt > 1:
            floor = BASE_SECONDS[path] * 2 ** (attempt - 2)
            assert seconds_between(last[path, attempt - 1], run) >= floor, f"{path}: attempt {attempt} began early"
    gathered = max((run for (path, _), run in last.items() if path.startswith("gather.")), key=lambda run: run.at)
    assert seconds_between(gathered, first["doomed", 1]) >= SLEEP_SECONDS


def seconds_between(earlier: Run, later: Run) -> float:
    """So many, at most: of two workers, each goes by its own clock."""
    return later.at - earlier.at + (CLOCKS_SECONDS if later.pid != earlier.pid else 0.0)
