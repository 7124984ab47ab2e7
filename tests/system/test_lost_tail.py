"""A server whose append-only file loses its last second of writes, as it does when its host loses power.

`kill -9` of a server keeps what was written, as the kernel still has it. So the end of the file is cut off.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system.support.servers import Server
from system.support.stage import HANG_SECONDS, Stage

from stepwell import Client
from stepwell.core.errors import StoreError, UnknownExecution

LOST_SECONDS = 1.0
COMMITTED = b"}:seq\r\n"  # each commit counts in its partition
TICKING = 4  # executions that commit all the while, whatever holds up those who start others
SAMPLE_SECONDS = 0.02
TOLD_BEFORE, TOLD_AFTER = 60, 20


class Growth:
    """How large the append-only file was at which moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appendonlydir"
        self._sizes: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _file(self) -> Path:
        [file] = self._folder.glob("*.incr.aof")
        return file

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._sizes.append((time.monotonic(), self._file().stat().st_size))

    @property
    def seconds(self) -> float:
        """For how long it has been watched."""
        return self._sizes[-1][0] - self._sizes[0][0] if self._sizes else 0.0

    def cut(self, seconds: float) -> None:
        """Cut off what was written in the last seconds, and at least one commit. The server must be dead.

        Where nobody looked for a while, what was written then stays: workers need not remember more than that.
        """
        self._over.set()
        self._thread.join()
        last = self._sizes[-1][0]
        last_commit = self._file().read_bytes().rindex(COMMITTED)
        os.truncate(self._file(), min(last_commit, *(size for at, size in self._sizes if at >= last - seconds)))


class Load:
    """Starts executions one after the other and remembers which results it has seen; an outage does not stop it."""

    def __init__(self, client: Callable[[], Client], prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self.started: list[str] = []
        self.told: dict[str, object] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._client() as client:
            while not self._over.is_set():
                execution_id = f"{self._prefix}-{len(self.started)}"
                self.started.append(execution_id)
                self._again_and_again(lambda each=execution_id: client.start("chain", {"words": 3}, each))
                self.told[execution_id] = self._again_and_again(lambda each=execution_id: self._result(client, each))

    def _result(self, client: Client, execution_id: str) -> object:
        # Whoever was told that an execution is created may have to create it again: that much, relaxed may lose.
        client.start("chain", {"words": 3}, execution_id)
        return client.result(execution_id, timeout=HANG_SECONDS)

    def _again_and_again(self, ask: Callable[[], Any]) -> Any:
        while True:
            # Whose row is gone for a moment is not lost: it comes back, or is created again.
            with contextlib.suppress(StoreError, UnknownExecution):
                return ask()
            time.sleep(SAMPLE_SECONDS)

    def end(self) -> None:
        """No more starts; all that were made have been waited for."""
        self._over.set()
        self._thread.join()


def seen_of(client: Client, execution_id: str) -> tuple[object, object]:
    """Status and result; nothing of an execution that is not there."""
    try:
        found = client.describe(execution_id)
    except UnknownExecution:
        return "", None
    return found["status"], found["result"]


@pytest.mark.pain(56)
@pytest.mark.parametrize("shards", ["1", "2"])
def test_what_the_server_lost_is_brought_back_by_the_workers_that_live(
    served: Stage, server: Server, tmp_path: Path, shards: str
) -> None:
    worker = served.worker("--shards", shards).ready()
    growth = Growth(tmp_path / "server")
    loads = [Load(served.client, prefix) for prefix in ("a", "b", "c")]
    ticking = [f"t-{number}" for number in range(TICKING)]
    with served.client() as client:
        for number in range(10):
            client.start("sleeper", {}, f"early-{number}")
        for each in ticking:
            client.start("ticking", {"gate": "end"}, each)
        served.eventually(lambda: growth.seconds > 2 * LOST_SECONDS, "there is a second to lose")
        served.eventually(lambda: all(len(load.told) > TOLD_BEFORE for load in loads), "there is something to lose")
        client.start("sleeper", {}, "late")
        served.eventually(lambda: client.describe("late")["status"] == "waiting", "it sleeps")
        told = [dict(load.told) for load in loads]
        server.kill()
        growth.cut(LOST_SECONDS)
        server.start()
        served.eventually(
            lambda: all(len(load.told) > len(seen) + TOLD_AFTER for load, seen in zip(loads, told, strict=True)),
            "the work goes on",
        )
        for load in loads:
            load.end()
        served.eventually(lambda: worker.metric("stepwell_tails_lost_total") > 0, "it was noticed")
        served.eventually(lambda: worker.metric("stepwell_healed_executions_total") > 0, "it was mended")
        served.open("end")
        ticks = sum(client.result(each, timeout=HANG_SECONDS) for each in ticking)
        started = [each for load in loads for each in load.started]
        for each in started:
            served.eventually(lambda each=each: seen_of(client, each) == ("completed", 3), f"{each} is what it was")
        for each in ("late", *(f"early-{number}" for number in range(10))):
            served.eventually(lambda each=each: seen_of(client, each) == ("waiting", None), f"{each} sleeps")
        assert client.dead_letters() == []
    keys: dict[tuple[str, str], set[str]] = {}
    runs: dict[tuple[str, str], int] = {}
    for run in served.journal.runs():
        keys.setdefault((run.execution, run.path), set()).add(run.key)
        runs[run.execution, run.path] = runs.get((run.execution, run.path), 0) + 1
    assert {len(each) for each in keys.values()} == {1}
    assert len(runs) == 3 * len(started) + ticks
    assert {each for each, count in runs.items() if count > 1} == set(), "a recorded step has run again"
    assert worker.process.poll() is None
    assert "Traceback" not in served.said
