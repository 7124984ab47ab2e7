"""One system at work: its server, its workers and the load, until the block is left."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

from benchmarks.peers.install import Environment
from benchmarks.peers.peer import Command, Peer, Skip
from benchmarks.peers.processes import Process, cpu_seconds
from benchmarks.peers.servers import serve

__all__ = ["STEPS", "Answer", "Journal", "Stand", "parsed", "shares"]

STEPS = 5
READY_SECONDS = 120.0
ANSWER_SECONDS = 90.0


class Journal:
    """The file to which workers say that they are ready, and slow steps when they began (`S`) and ended (`E`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        path.chmod(0o666)

    def entries(self) -> list[list[str]]:
        """All whole lines, in words."""
        whole, _, _ = self.path.read_text(encoding="utf-8").rpartition("\n")
        return [line.split() for line in whole.splitlines()]

    def ready(self) -> int:
        """How many workers have said so."""
        return sum(1 for entry in self.entries() if entry[0] == "R")

    def ends(self) -> Counter[tuple[str, str]]:
        """How often each step (flow, number) has ended."""
        return Counter((entry[1], entry[2]) for entry in self.entries() if entry[0] == "E")

    def last_end(self) -> float:
        """When the last step ended, by the monotonic clock."""
        return max(float(entry[3]) for entry in self.entries() if entry[0] == "E")


class Answer(TypedDict, total=False):
    """How many seconds a throughput took, or how many milliseconds each flow."""

    seconds: float
    ms: list[float]


@dataclass(frozen=True, slots=True)
class _Roles:
    """Who does the work and who asks for it, in the workload at hand."""

    worker: Command | None
    workers: int
    ready: int
    load: Command | None
    loads: int
    environment: dict[str, str]

    @classmethod
    def of(cls, peer: Peer, recovering: bool) -> Self:
        if not recovering:
            return cls(peer.worker, peer.workers, peer.ready, peer.load, peer.loads, peer.environment)
        own = peer.recovery
        return cls(
            own.worker or peer.worker,
            own.workers or peer.workers,
            peer.ready if own.ready is None else own.ready,
            None if own.self_starting else own.load or peer.load,
            1,
            peer.environment | own.environment,
        )


class Stand:
    """Everything of one peer that runs. `flows` is how many a self-starting worker runs when `recovering`."""

    def __init__(
        self, peer: Peer, made: Environment, cache: Path, folder: Path, recovering: bool = False, flows: int = 0
    ):
        self._peer = peer
        self._made = made
        self._folder = folder
        self._roles = _Roles.of(peer, recovering)
        self._stack = ExitStack()
        self._cache = cache
        self._flows = flows
        self._workers: list[Process] = []
        self._loads: list[_Load] = []
        self._first = 1
        self.journal = Journal(folder / "journal")

    def __enter__(self) -> Self:
        try:
            self._server = self._stack.enter_context(serve(self._peer, self._cache, self._folder))
            self._environment = {
                **self._made.variables(),
                **self._server.environment,
                "PEER_JOURNAL": str(self.journal.path),
                "PEER_FLOWS": str(self._flows),
                **self._roles.environment,
            }
            self._prepare()
            self.start_workers()
            self._wait_until_ready()
            self._start_loads()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def throughput(self, flows: int, in_flight: int) -> float:
        """Run so many flows to their end; the seconds that took."""
        answers = self._ask("throughput", flows, in_flight=max(1, in_flight // len(self._loads)))
        return max(answer["seconds"] for answer in answers)

    def latencies(self, at_most: int, seconds: float) -> list[float]:
        """Milliseconds of flows that run one at a time, for so long or so many."""
        (answer,) = self._ask("latency", at_most, loads=1, seconds=seconds)
        return answer["ms"]

    def submit(self, flows: int) -> None:
        """Start flows of slow steps, and wait for none; nothing to do where the worker finds them by itself."""
        if self._loads:
            self._ask("start", flows)

    def cpu_seconds(self) -> float | None:
        """CPU time of server and workers (where the load runs the flows itself, of the load), so far."""
        return cpu_seconds(
            [*self._server.roots, *(each.pid for each in self._workers or [load.process for load in self._loads])]
        )

    def start_workers(self) -> None:
        """Start the workers, without waiting for them."""
        if self._roles.worker is None:
            return
        for number in range(self._roles.workers):
            words = self._made.words(self._roles.worker)
            log = self._folder / f"worker-{number}.log"
            environment = {**self._environment, "PEER_NUMBER": str(number)}
            process = Process([self._filled(word) for word in words], log, environment, cwd=self._folder)
            self._workers.append(self._stack.enter_context(process))

    def kill_workers(self) -> None:
        """SIGKILL all processes of all workers."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def require_workers(self) -> None:
        """Raise Skip if one has ended by itself."""
        for worker in self._workers:
            worker.require_running()

    def _filled(self, word: str) -> str:
        """A word in which `$NAME` stands for what the environment says."""
        for name, value in self._environment.items():
            word = word.replace(f"${name}", value)
        return word

    def _prepare(self) -> None:
        if self._peer.prepare is None:
            return
        words = [self._filled(word) for word in self._made.words(self._peer.prepare)]
        with Process(words, self._folder / "prepare.log", self._environment, cwd=self._folder) as process:
            try:
                failed = process.popen.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                raise Skip(f"its preparation did not end within {READY_SECONDS:g} s") from None
            if failed:
                process.require_running()

    def _wait_until_ready(self) -> None:
        wanted = self._roles.ready if self._roles.worker else 0
        deadline = time.monotonic() + READY_SECONDS
        while self.journal.ready() < wanted:
            self.require_workers()
            if time.monotonic() > deadline:
                words = self._workers[0].last_words()
                raise Skip(f"its worker was not ready within {READY_SECONDS:g} s: {words}")
            time.sleep(0.02)

    def _start_loads(self) -> None:
        if self._roles.load is None:
            return
        for number in range(self._roles.loads):
            words = self._made.words(self._roles.load)
            log = self._folder / f"load-{number}.log"
            environment = {**self._environment, "PEER_NUMBER": str(number)}
            process = Process([self._filled(word) for word in words], log, environment, cwd=self._folder, piped=True)
            self._loads.append(_Load(self._stack.enter_context(process)))
            # One after the other: the first one makes tables that the others would race for.
            self._loads[-1].answer(READY_SECONDS)

    def _ask(self, what: str, flows: int, *, loads: int | None = None, **more: float) -> list[Answer]:
        asked = self._loads[:loads]
        for load, share in zip(asked, shares(flows, len(asked)), strict=True):
            load.ask({"do": what, "first": self._first, "flows": share, **more})
            self._first += share
        return [load.answer(ANSWER_SECONDS, self.require_workers) for load in asked]


class _Load:
    """A load's process, and what it has answered."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, question: dict[str, object]) -> None:
        assert self.process.popen.stdin is not None
        try:
            self.process.popen.stdin.write(json.dumps(question) + "\n")
            self.process.popen.stdin.flush()
        except BrokenPipeError:
            self.process.popen.wait(5)
            self.process.require_running()

    def answer(self, patience: float, check: Callable[[], None] = lambda: None) -> Answer:
        """The next answer. What else a library prints is passed over."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._lines.get(timeout=0.5)
            except queue.Empty:
                check()
                self.process.require_running()
                if time.monotonic() > deadline:
                    raise Skip(f"no answer within {patience:g} s: {self.process.last_words()}") from None
                continue
            found = parsed(line)
            if found is not None:
                return found

    def _read(self) -> None:
        assert self.process.popen.stdout is not None
        try:
            for line in self.process.popen.stdout:
                self._lines.put(line)
        except ValueError:  # closed by whoever ends the process
            return


def parsed(line: str) -> Answer | None:
    """What a load says with a line; None where it is something that a library has printed."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if found == "ready":
        return {}
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("seconds"), int | float):
        return {"seconds": float(found["seconds"])}
    if isinstance(found.get("ms"), list):
        return {"ms": [float(each) for each in found["ms"]]}
    return {} if "started" in found else None


def shares(flows: int, loads: int) -> list[int]:
    """So many flows for so many loads."""
    return [flows // loads + (1 if place < flows % loads else 0) for place in range(loads)]
