"""A storm over workers and their server while executions run, drawn by a seed; then nothing may be lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import redis
from system.support.effects import EffectReceiver
from system.support.processes import HANG_SECONDS, eventually
from system.support.stage import KEYS, SUPPORT, Stage, WorkerProcess
from system.support.stormy import STEP_SECONDS, STEPS

from stepwell import Client
from stepwell.core.errors import StoreError, UnknownExecution
from stepwell.store.link import Link
from stepwell.store.scripts import Scripts

T = TypeVar("T")
FLOWS = SUPPORT / "stormy.py"
# Past the lease of 10 s, so that others have taken over when it wakes up.
FROZEN_SECONDS = 11.5
SHORT_SECONDS = 15.0
CALM_SECONDS = 400.0
# What is recorded and when a body began are told by two clocks of one host.
CLOCKS_MS = 250.0
SHARDS = 2


@dataclass(frozen=True)
class ServerFaults:
    """What can be done to the server in use: end and start it (or a node of it), and cut all connections."""

    restart: Callable[[], None]
    reset: Callable[[], None]
    forgets: bool = False
    """Whether it may lose what it has acknowledged, so that starts are repeated as their senders would have to."""


@dataclass(frozen=True)
class Sleep:
    """Shards that were stopped at that wall time (ms), and processes that they had for steps."""

    pids: frozenset[int]
    since_ms: float


@dataclass
class Storm:
    """`blow` lets it rage, `check` proves that all came out right. The same seed draws the same faults."""

    stage: Stage
    receiver: EffectReceiver
    server: ServerFaults
    seed: int
    seconds: float = SHORT_SECONDS
    executions: int = 300
    options: tuple[str, ...] = ()  # of the workers
    workers: list[WorkerProcess] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    frozen: list[tuple[float, list[int]]] = field(default_factory=list)
    sleeps: list[Sleep] = field(default_factory=list)
    started: int = 0

    def blow(self) -> None:
        """Start executions and do harm, for so many seconds; then let all end."""
        chance = random.Random(self.seed)
        self.workers += [self._worker(), self._worker()]
        for worker in self.workers:
            worker.ready()
        begin = time.monotonic()
        plan = plan_of(chance, self.seconds)
        for number, (at, fault) in enumerate(plan):
            self._pass(begin + at)
            self._start_until(-(-self.executions * (number + 1) // len(plan)))
            self._pass(time.monotonic() + chance.uniform(0.0, 0.9 * STEPS * STEP_SECONDS))
            self._do(fault, chance)
        self._pass(begin + self.seconds)
        self._calm()

    def check(self) -> None:
        """All completed, no recorded step ran again, one key and one effect per step, nothing is left over."""
        ids = [f"v{number}" for number in range(self.executions)]
        told = self.told
        with self.stage.client() as client:
            rows = {each: client.describe(each) for each in ids}
            assert client.dead_letters() == [], told
        assert Counter(row["status"] for row in rows.values()) == {"completed": self.executions}, told
        self._check_journal(rows, told)
        assert self.receiver.mixed == set(), told
        assert Counter((b["execution"], b["path"]) for b in self.receiver.effects.values()) == Counter(
            (each, path) for each in ids for path in paths()
        ), told
        self._check_left_over(told)

    # Faults.

    def _do(self, fault: str, chance: random.Random) -> None:
        self.done.append(fault)
        worker = self.workers[chance.randrange(len(self.workers))]
        if fault == "shard":
            self._kill_shard(worker, chance)
        elif fault == "worker":
            self._thaw(worker)
            worker.kill()
            self._pass(time.monotonic() + chance.uniform(0.2, 1.0))
            self._replace_dead()
        elif fault == "freeze":
            if not self.frozen:
                pids = [worker.pid, *shards_of(worker.pid)]
                for pid in pids:
                    send(pid, signal.SIGSTOP)
                now_ms = time.time() * 1000
                steps = [pid for shard in pids[1:] for pid in children_of(shard)]
                self.sleeps.append(Sleep(frozenset([*pids[1:], *steps]), now_ms))
                self.frozen.append((time.monotonic() + FROZEN_SECONDS, pids))
        elif fault == "restart":
            self.server.restart()
        else:
            persist(self.server.reset)

    def _kill_shard(self, worker: WorkerProcess, chance: random.Random) -> None:
        victims = shards_of(worker.pid)
        if victims:
            send(chance.choice(victims), signal.SIGKILL)

    def _thaw(self, worker: WorkerProcess | None = None) -> None:
        for due, pids in list(self.frozen):
            if worker is None or worker.pid in pids or time.monotonic() >= due:
                self.frozen.remove((due, pids))
                for pid in reversed(pids):
                    send(pid, signal.SIGCONT)

    def _pass(self, until: float) -> None:
        """Let time pass, wake up who has slept long enough."""
        while (now := time.monotonic()) < until:
            due = min((due for due, _ in self.frozen), default=until)
            time.sleep(max(0.0, min(until, due) - now))
            if self.frozen and time.monotonic() >= due:
                for pid in self.frozen.pop(0)[1]:
                    send(pid, signal.SIGCONT)

    def _replace_dead(self) -> None:
        """As a service manager does."""
        self.workers = [worker if worker.process.poll() is None else self._worker() for worker in self.workers]

    def _all_run(self) -> bool:
        self._replace_dead()
        return all(worker.announced for worker in self.workers)

    def _calm(self) -> None:
        self._pass(max((due for due, _ in self.frozen), default=0.0))
        eventually(self._all_run, f"all workers run after {self.done}")
        with self.stage.client() as client:

            def all_ended() -> bool:
                self._replace_dead()
                if self.server.forgets:
                    self._start(range(self.executions))
                return len(persist(lambda: client.list("completed", limit=2 * self.executions))) >= self.executions

            try:
                eventually(all_ended, f"all have completed after {self.done}", CALM_SECONDS)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self._unfinished(client)}") from error

    def _unfinished(self, client: Client) -> str:
        """What is known of each that has not completed."""
        completed = {each["id"] for each in client.list("completed", limit=2 * self.executions)}
        told = []
        for name in (f"v{number}" for number in range(self.executions)):
            if name not in completed:
                try:
                    told.append(str(client.describe(name)))
                except UnknownExecution as error:
                    told.append(str(error))
        return "\n".join(told)

    # Work.

    def _worker(self) -> WorkerProcess:
        return self.stage.worker("--shards", str(SHARDS), *self.options, flows=FLOWS)

    def _start_until(self, count: int) -> None:
        self._start(range(self.started, count))
        self.started = count

    def _start(self, numbers: range) -> None:
        """Every third by the ingress, as another language would."""
        given = {"url": self.receiver.url}
        with self.stage.client() as client, self.stage.server() as server:
            link = Link(server, KEYS, Scripts())
            for number in numbers:
                name = f"v{number}"
                if number % 3:
                    persist(lambda name=name: client.start("voyage", given, name, unchecked=True))
                else:
                    entry = ["type", "start", "flow", "voyage", "id", name, "input", json.dumps(given)]
                    persist(lambda entry=entry: link.call([["XADD", KEYS.ingress, "*", *entry]]))

    # Judgement.

    def _check_journal(self, rows: dict[str, dict[str, Any]], told: str) -> None:
        entries = self.stage.journal.entries()
        runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for entry in entries:
            runs[entry["execution"], entry["path"]].append(entry)
        overslept = {id(entry) for entry in overslept_by(self.sleeps, entries)}
        for execution, row in rows.items():
            for shown in row["steps"]:
                found = runs[execution, shown["path"]]
                assert found, f"{execution} {shown['path']} never ran; {told}"
                assert {entry["key"] for entry in found} == {shown["key"]}, f"{execution} {shown['path']}; {told}"
                recorded = shown["attempts"][-1]["ended_at"]
                awake = [entry["at_ms"] for entry in found if id(entry) not in overslept]
                late = [at - recorded for at in awake if at > recorded + CLOCKS_MS]
                assert not late, f"{execution} {shown['path']} ran again {late} ms after it was recorded; {told}"
            for before, after in zip(paths(), paths()[1:], strict=False):
                next_began = min(entry["at_ms"] for entry in runs[execution, after])
                found = [entry for entry in runs[execution, before] if id(entry) not in overslept]
                again = [entry for entry in found if entry["at_ms"] > next_began]
                assert not again, f"{execution} {before} ran again after {after} had begun; {told}"

    @property
    def told(self) -> str:
        """How hard it was: what was done, bodies that ran, requests that arrived."""
        bodies = len(self.stage.journal.entries())
        return f"seed {self.seed}: {dict(Counter(self.done))}; {bodies} bodies, {self.receiver.requests} requests"

    def _check_left_over(self, told: str) -> None:
        with self.stage.server() as server:
            link = Link(server, KEYS, Scripts())
            asked: list[Any] = [["XLEN", stream] for stream in (KEYS.ingress, *(part.inbox for part in KEYS.parts))]

            def empty() -> bool:
                return not any(link.call(asked))

            eventually(lambda: persist(empty), f"all inboxes are empty; {told}")


def plan_of(chance: random.Random, seconds: float) -> list[tuple[float, str]]:
    """Faults with the seconds at which they come. All kinds come; one that must outlast a lease begins first."""
    kinds = ["shard", "restart", "worker", "reset", "shard", "reset"]
    last = seconds - 1.0
    plan = []
    at = 0.5
    while not plan or at + FROZEN_SECONDS < seconds:
        plan.append((at, "freeze"))
        at += FROZEN_SECONDS + chance.uniform(2.0, 6.0)
    at = 1.5
    bag: list[str] = []
    while at < last:
        if not bag:
            bag = chance.sample(kinds, len(kinds))
        plan.append((at, bag.pop()))
        at += chance.uniform(1.0, 2.5)
    return sorted(plan)


def overslept_by(sleeps: list[Sleep], entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of bodies that may have been let begin before their processes were stopped, and came to their first
    line when those woke up: nobody could keep them from that. A thread begins one body at a time, so of each process
    (of a shard, or one that a shard has for a step) it can only be the first."""
    found = []
    for sleep in sleeps:
        woken: set[int] = set()
        for entry in entries:
            pid = entry["pid"]
            if entry["at_ms"] > sleep.since_ms and pid in sleep.pids - woken:
                woken.add(pid)
                found.append(entry)
    return found


def paths() -> list[str]:
    """The steps of the flow."""
    return ["port_of_call", *(f"port_of_call#{number}" for number in range(2, STEPS + 1))]


def shards_of(worker: int) -> list[int]:
    """The processes of a worker that run flows."""
    return [pid for pid, title in children_of(worker).items() if title.startswith("stepwell: shard")]


def children_of(parent: int) -> dict[int, str]:
    """The processes that it has started, with their command lines."""
    asked = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(parent)]
    lines = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return {int(pid): title for pid, _, title in (line.strip().partition(" ") for line in lines)}


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def persist(act: Callable[[], T], seconds: float = HANG_SECONDS) -> T:
    """Do it as soon as the server is there again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except (StoreError, redis.RedisError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
