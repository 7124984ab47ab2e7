"""What a system test works with: a data directory or a server, workers, commands and clients on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import redis
from system.support.journal import Journal
from system.support.processes import HANG_SECONDS, eventually, lives

from benchmarks.shares import settled
from stepwell import Client
from stepwell.client import CommandResult
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer
from stepwell.store.keys import Keys

SUPPORT = Path(__file__).resolve().parent
SUBJECT = SUPPORT / "subject.py"
KEYS = Keys()
NEVER_ENDING = "86000"
"""A grace, in seconds, that no test could wait for."""
TAIL_CHARACTERS = 5000
CLOCK_MOVES_MS = 1000
"""By so much a shard may set its clock when it renews its leases: a tenth of the time since it did so last."""


class Eventually(Protocol):
    """Calls `check` until its answer is true, and returns that."""

    def __call__(self, check: Callable[[], Any], what: str, seconds: float = HANG_SECONDS) -> Any: ...


class WorkerProcess:
    """One `stepwell run`; what it says goes to two files. `pid` is its parent process'."""

    def __init__(self, process: subprocess.Popen[str], out: Path, err: Path, eventually: Eventually) -> None:
        self.process = process
        self._may_end = False
        self.pid = process.pid
        self._out = out
        self._err = err
        self._eventually = eventually

    @property
    def out(self) -> str:
        """Its stdout so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Its stderr so far."""
        return self._err.read_text()

    @property
    def shards(self) -> dict[int, int]:
        """The process that runs each shard now, by the shard's number."""
        said = re.findall(r"shard \S+/(\d+) runs \(process (\d+)\)", self.err)
        return {int(index): int(pid) for index, pid in said}

    @property
    def shard(self) -> int:
        """The process of the only shard."""
        [pid] = self.shards.values()
        return pid

    def freeze(self) -> None:
        """SIGSTOP all its processes."""
        for pid in (self.pid, *self.shards.values()):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT all its processes."""
        for pid in (self.pid, *self.shards.values()):
            os.kill(pid, signal.SIGCONT)

    def require_running(self) -> None:
        """Fail, with what it has said, if it has ended though nobody has told it to."""
        code = self.process.poll()
        assert code is None or self._may_end, f"worker {self.pid} ended with {code}:\n{self.err[-TAIL_CHARACTERS:]}"

    @property
    def announced(self) -> bool:
        """Whether it has said that it runs."""
        return self.out.startswith(("stepwell: running", "stepwell: standing by", '{"running": '))

    def ready(self) -> WorkerProcess:
        """Wait until it has said that it runs."""

        def announced() -> bool:
            self.require_running()
            return self.announced

        self._eventually(announced, f"worker {self.pid} is ready")
        return self

    def wait_for(self, words: str) -> None:
        """Wait until its log has these words."""
        self._eventually(lambda: words in self.err, f"worker {self.pid} says {words!r}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, by which it may end."""
        self._may_end = True
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end and for that of its shards, which go on until they see it."""
        self._may_end = True
        lived = self.process.poll() is None
        self.process.kill()
        self.process.wait(HANG_SECONDS)
        shards = self.shards.values()
        for pid in shards:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)  # one that was stopped could not end with it
        if lived:  # else others may have their numbers by now
            eventually(lambda: not any(map(lives, shards)), f"the shards of worker {self.pid} have ended")

    def kill_shard(self) -> None:
        """SIGKILL the only shard; its parent starts it again."""
        os.kill(self.shard, signal.SIGKILL)

    def finish(self) -> int:
        """Wait for its end; its exit code."""
        self._may_end = True
        return self.process.wait(HANG_SECONDS)

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page that it serves."""
        found = re.search(r"metrics\W+http://localhost:(\d+)/metrics", self.out)
        assert found, self.out
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/{path}", timeout=HANG_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 if there is none."""
        total = 0.0
        status, page = self.page("metrics")
        assert status == 200, page
        for line in page.splitlines():
            sample, _, value = line.rpartition(" ")
            bare, _, rest = sample.partition("{")
            if bare == name and all(f'{key}="{wanted}"' in rest for key, wanted in labels.items()):
                total += float(value)
        return total

    def counts(self, name: str, value: float, **labels: str) -> None:
        """Wait until a metric is that: it is told right after what it tells of, which may be known elsewhere before."""
        self._eventually(lambda: self.metric(name, **labels) == value, f"{name} {labels} is {value:g}")


class PatientClient(Client):
    """Waits for the answers to its commands as long as tests do."""

    def retry(self, execution_id: str, timeout: float | None = HANG_SECONDS) -> CommandResult:
        """As a client does."""
        return super().retry(execution_id, timeout)

    def cancel(self, execution_id: str, timeout: float | None = HANG_SECONDS) -> CommandResult:
        """As a client does."""
        return super().cancel(execution_id, timeout)

    def signal(
        self, execution_id: str, name: str, payload: object = None, timeout: float | None = HANG_SECONDS
    ) -> CommandResult:
        """As a client does."""
        return super().signal(execution_id, name, payload, timeout)


class Stage:
    """One test's data, workers, commands, gates and journal. `url` is a server's; without one it is embedded."""

    def __init__(self, processes: Any, folder: Path, url: str | None = None) -> None:
        self._processes = processes
        self._folder = folder
        self.url = url
        self.data = folder / "data"
        self.gates = folder / "gates"
        self.gates.mkdir()
        self.journal = Journal(folder / "journal")
        self._workers: list[WorkerProcess] = []
        self._count = 0
        self._counting = threading.Lock()

    def eventually(self, check: Callable[[], Any], what: str, seconds: float = HANG_SECONDS) -> Any:
        """Call `check` until its answer is true, and return that. Workers must live meanwhile, unless told to end."""

        def answer() -> Any:
            found = check()
            if not found:
                for worker in self._workers:
                    worker.require_running()
            return found

        return eventually(answer, what, seconds)

    def beside(self, name: str) -> Stage:
        """Another stage on the same data, with its own journal and gates."""
        folder = self._folder / name
        folder.mkdir()
        made = Stage(self._processes, folder, self.url)
        made.data = self.data
        return made

    @property
    def program(self) -> list[str]:
        """What a command begins with."""
        return [sys.executable, "-m", "stepwell.cli"]

    @property
    def where(self) -> list[str]:
        """The options that say where the data are."""
        return ["--data", str(self.data)] if self.url is None else ["--redis", self.url]

    @property
    def environment(self) -> dict[str, str]:
        """What the flows of `subject` must find in theirs."""
        return {
            **os.environ,
            "STEPWELL_TEST_JOURNAL": str(self.journal.file),
            "STEPWELL_TEST_GATES": str(self.gates),
        }

    def worker(self, *options: str, flows: Path = SUBJECT) -> WorkerProcess:
        """Start `stepwell run` on the flows of `subject`, with one shard unless the options say more."""
        command = [sys.executable, "-m", "stepwell.cli", "run", str(flows), *self.where, "--metrics-port", "0"]
        return self.start([*command, "--shards", "1", *options])

    def start(self, command: list[str]) -> WorkerProcess:
        """Start any command that is a worker."""
        with self._counting:
            self._count += 1
            number = self._count
        out, err = self._folder / f"out-{number}", self._folder / f"err-{number}"
        with out.open("w") as to_out, err.open("w") as to_err:
            process = self._processes.start(command, stdout=to_out, stderr=to_err, env=self.environment)
        worker = WorkerProcess(process, out, err, self.eventually)
        self._workers.append(worker)
        return worker

    def end(self) -> None:
        """Kill its workers; then, as the last user, stop the embedded server that they may have left."""
        for worker in self._workers:
            worker.kill()
        if (self.data / "server.json").exists():
            EmbeddedServer.use(self.data).leave()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `stepwell` command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "stepwell.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_SECONDS,
            cwd=self._folder,
            env=self.environment,
        )

    def client(self) -> Client:
        """A client of these data."""
        return PatientClient(data_dir=self.data) if self.url is None else PatientClient(self.url)

    def server(self) -> redis.Redis:
        """A connection to the server in use."""
        if self.url is not None:
            return connect(self.url)
        return connect(f"unix://{json.loads((self.data / 'server.json').read_text())['socket']}")

    def holders(self) -> dict[int, str]:
        """The shard that holds each partition."""
        with self.server() as server:
            leases = {part.number: server.get(part.lease) for part in KEYS.parts}
        return {partition: lease.decode().split("|")[0] for partition, lease in leases.items() if lease}

    def settled(self, shards: int = 2) -> bool:
        """Whether so many shards hold what is for each of them, so that nothing is about to move."""
        return settled(self.holders(), KEYS.partitions, shards)

    def rows(self, executions: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """What Redis holds of them."""
        with self.server() as server:
            found = {name: server.hgetall(KEYS.row(name)) for name in executions}
        return {
            name: {field.decode(): value for field, value in fields.items()} for name, fields in found.items() if fields
        }

    def open(self, gate: str) -> None:
        """Let held steps go on."""
        (self.gates / gate).touch()

    def close(self, gate: str) -> None:
        """Hold steps again."""
        (self.gates / gate).unlink()

    def ran(self, execution: str, path: str, times: int = 1) -> None:
        """Wait until a step's body has run so many times."""
        self.eventually(
            lambda: len(self.journal.runs(execution, path)) >= times, f"{path} of {execution} has run {times} times"
        )

    @property
    def said(self) -> str:
        """All that its workers have said, and those of stages beside it."""
        files = [path for kind in ("out", "err") for path in self._folder.rglob(f"{kind}-[0-9]*")]
        return "".join(path.read_text(errors="replace") for path in sorted(files))
