"""Workers to be killed, as `stepwell run` makes them, and the journal in which their steps say when they ran."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from benchmarks.flows import JOURNAL
from benchmarks.load import Load
from benchmarks.shares import settled
from benchmarks.stage import count
from stepwell.core.names import check_execution_id
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer
from stepwell.store.keys import Keys
from stepwell.store.leases import LeaseHolder, LeaseStore, parse_lease
from stepwell.store.scripts import Scripts

__all__ = ["Journal", "Line", "Scene", "WorkerProcess", "Workers"]

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Line:
    """A body `began` or `ended` at that second of the monotonic clock, which all processes of a machine share."""

    at: float
    what: str
    pid: int
    execution: str
    path: str


class Journal:
    """What bodies have written so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0
        self._lines: list[Line] = []

    def lines(self) -> list[Line]:
        """All lines that are complete."""
        with self.path.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text.rpartition("\n")[0]
        if whole:
            self._read += len(whole) + 1
            for line in whole.split("\n"):
                at, what, pid, execution, path = line.split()
                self._lines.append(Line(float(at), what, int(pid), check_execution_id(execution), path))
        return self._lines

    def ended(self) -> int:
        """How many bodies have ended."""
        return sum(1 for line in self.lines() if line.what == "ended")

    def executions(self) -> int:
        """How many executions have begun a step."""
        return len({line.execution for line in self.lines()})


class WorkerProcess:
    """One `stepwell run`, with its shards."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process = process
        self._out = out
        self._frozen: list[int] = []

    def wait_until_ready(self) -> None:
        """Wait until it has said that it runs."""
        deadline = time.monotonic() + START_SECONDS
        while "stepwell: " not in self._out.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the worker did not start: {self._out.with_suffix('.err').read_text()[-2000:]}")
            time.sleep(0.02)

    def shards(self) -> list[int]:
        """Process ids of its shards."""
        said = self._out.with_suffix(".err").read_text()
        return [int(pid) for pid in re.findall(r"shard \S+ runs \(process (\d+)\)", said)]

    def kill(self) -> None:
        """SIGKILL; its shards die with it, but for frozen ones, which can't."""
        self._process.kill()
        self._process.wait()
        for pid in self._frozen:
            os.kill(pid, signal.SIGKILL)
        self._frozen = []

    def freeze(self) -> None:
        """Stop it and its shards, as if their machine stood still."""
        self._frozen = self.shards()
        for pid in (self._process.pid, *self._frozen):
            os.kill(pid, signal.SIGSTOP)


class Workers:
    """Starts workers on one server."""

    def __init__(self, url: str, folder: Path, journal: Path) -> None:
        self._url = url
        self._folder = folder
        self._environment = {**os.environ, JOURNAL: str(journal)}
        self._all: list[WorkerProcess] = []

    def start(self, shards: int, max_running: int = 1000, wait: bool = True) -> WorkerProcess:
        """Another worker; `wait` until it is ready."""
        out = self._folder / f"worker-{len(self._all)}.out"
        limits = ["--max-running", str(max_running), "--max-steps", str(max_running)]
        command = [sys.executable, "-m", "stepwell", "run", "benchmarks.flows", "--redis", self._url, *limits]
        with out.open("wb") as said, out.with_suffix(".err").open("wb") as logged:
            process = subprocess.Popen(
                [*command, "--shards", str(shards), "--metrics-port", "0"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=logged,
            )
        worker = WorkerProcess(process, out)
        self._all.append(worker)
        if wait:
            worker.wait_until_ready()
        return worker

    def kill(self) -> None:
        """End all."""
        for worker in self._all:
            worker.kill()


class Scene:
    """A server of its own, workers on it, and their journal; all gone afterwards."""

    def __init__(self) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="stepwell-bench-"))
        self._server = EmbeddedServer.use(self._dir / "data")
        self.keys = Keys()
        self.redis: redis.Redis = connect(self._server.url, client_name="stepwell-bench")
        self._leases = LeaseStore(self.redis, self.keys, Scripts())
        self.journal = Journal(self._dir / "journal")
        self.workers = Workers(self._server.url, self._dir, self.journal.path)
        self._started: list[str] = []

    def start(self, flow: str, count: int, step_seconds: float) -> None:
        """So many executions of a flow with steps that take so long."""
        load = Load(self._server.url, self.keys, Scripts(), flow, {"seconds": step_seconds})
        self._started += load.create(count)

    def count(self, status: str) -> int:
        """Executions of a status."""
        return count(self.redis, self.keys, status)

    def owners(self) -> dict[int, int]:
        """The process that owns each partition."""
        return {each: int(holder.host_info.split(",")[2]) for each, holder in self._holders().items()}

    def settled(self) -> bool:
        """Whether two shards hold what is for each of them, so that nothing is about to move."""
        return settled({each: holder.owner for each, holder in self._holders().items()}, self.keys.partitions, 2)

    def _holders(self) -> dict[int, LeaseHolder]:
        held = self._leases.read(range(self.keys.partitions))
        return {each: holder for each, value in held.items() if (holder := parse_lease(value)) is not None}

    def pid_of_executions(self) -> dict[str, int]:
        """The process that each started execution belongs to now."""
        owners = self.owners()
        return {each: owners.get(self.keys.partition_of(each), 0) for each in self._started}

    def first_owner(self) -> int:
        """The process that the first started execution belongs to: of any other one there may be none that are its."""
        return self.owners()[self.keys.partition_of(self._started[0])]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.workers.kill()
        self.redis.close()
        self._server.leave()
        shutil.rmtree(self._dir, ignore_errors=True)
