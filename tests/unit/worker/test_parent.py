"""The parent's loop: what it tells its shards and in which order, and how a worker ends. Its processes are notes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.worker.fleet_stage import Process, pulse

from stepwell.client.address import Address
from stepwell.core.errors import FlowLoadError, StepwellError, StoreUnfit, StoreUnreachable, UsageError
from stepwell.metrics.instruments import COMMITS, HEALED_EXECUTIONS
from stepwell.metrics.sheet import Sheet
from stepwell.store.keys import Keys
from stepwell.store.namespace import Namespace
from stepwell.worker import aide as aide_module
from stepwell.worker import control as c
from stepwell.worker import parent as module
from stepwell.worker.config import WorkerConfig
from stepwell.worker.parent import Parent

pytestmark = pytest.mark.threads
Answer = Callable[["Talker", c.ToShard], None]


class Talker(Process):
    """A process that answers what it is told, by a pipe that wakes the loop."""

    def __init__(self, pid: int, answer: Answer) -> None:
        super().__init__(pid)
        self._answer = answer
        self._read, self._write = os.pipe()

    @property
    def waitables(self) -> tuple[int, ...]:
        return (self._read,)

    def send(self, message: c.ToShard) -> bool:
        self.told.append(message)
        self._answer(self, message)
        return True

    def says(self, *messages: c.ToParent) -> None:
        """Say something, soon."""
        self.said += messages
        os.write(self._write, b"\0")

    def commits(self) -> None:
        """Redis has acknowledged a commit of it."""
        begin = next(each for each in self.told if isinstance(each, c.Begin))
        Sheet.open(Path(begin.settings.sheet)).count(COMMITS, "ok").inc()

    def ends(self, how: str) -> None:
        """End."""
        self.how = how
        os.write(self._write, b"\0")

    def receive(self) -> list[c.ToParent]:
        os.set_blocking(self._read, False)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        return super().receive()

    def bury(self) -> str:
        for fd in (self._read, self._write):
            os.close(fd)
        return super().bury()


def well(process: Talker, message: c.ToShard) -> None:
    """What a shard does that is well."""
    match message:
        case c.Load():
            process.says(c.Hello("h,b,1,1"), c.Loaded(("calm",)))
        case c.Begin():
            process.says(c.Started(pulse()))
        case c.Drain():
            process.says(c.Drained(1))
            process.ends("exit code 0")


class Station:
    """A worker's hold on its server."""

    url = "redis://db"
    worker_id = "w"
    where = "redis://db"
    moved = False
    revivals = 0
    left = False

    def __init__(self, _config: WorkerConfig) -> None: ...

    def revive(self) -> bool:
        type(self).revivals += 1
        moved, type(self).moved = type(self).moved, False
        return moved

    def leave(self) -> None:
        type(self).left = True


class Examination:
    """Finds nothing, and asks no server: its thread outlives the test."""

    def __init__(self, *_about: object) -> None: ...

    def run(self) -> bool:
        return False


class Scene:
    """A parent, its processes, and what opening the store brings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[Talker] = []
        self.answer: Answer = well
        self.error: Exception | None = None
        self.station: type[Station] = type("Station", (Station,), {})
        monkeypatch.setattr(aide_module, "SpawnedShard", self._spawn)
        monkeypatch.setattr(aide_module, "Examination", Examination)
        monkeypatch.setattr(module, "Station", self.station)
        monkeypatch.setattr(module, "open_store", self._open)
        monkeypatch.setattr(module, "set_title", lambda *_: None)
        monkeypatch.setattr(module, "TICK_SECONDS", 0.01)

    def parent(self, shards: int = 2) -> Parent:
        config = WorkerConfig(Address(url="redis://db"), max_running=7, grace=3.0)
        return Parent(config, ["flows.py"], shards, c.LogSettings(json=True))

    def _spawn(self, index: int) -> Talker:
        self.processes.append(Talker(100 + len(self.processes), lambda *about: self.answer(*about)))
        return self.processes[-1]

    def _open(self, _connect: object, _config: object) -> Namespace:
        if self.error is not None:
            raise self.error
        return Namespace(Keys("stepwell", 64), bytes(32), 64, 17)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    yield made
    assert all(process.buried for process in made.processes)


def drain_at_begin(parent: Parent) -> Answer:
    """Shards that are well; the next one that begins comes to a worker which is told to end."""

    def answer(process: Talker, message: c.ToShard) -> None:
        well(process, message)
        if isinstance(message, c.Begin):
            parent._signalled(signal.SIGTERM, None)

    return answer


def started(scene: Scene, shards: int = 2) -> Parent:
    return scene.parent(shards).start()


def ended(parent: Parent, number: int = signal.SIGTERM) -> int:
    parent._signalled(number, None)
    return parent.wait()


def test_shards_load_first_and_begin_when_the_server_was_checked(scene: Scene) -> None:
    parent = started(scene)
    assert parent.running
    assert parent.loaded.flows == ("calm",)
    for index, process in enumerate(scene.processes):
        load, begin = process.told[:2]
        assert load == c.Load(index, ("flows.py",), c.LogSettings(json=True))
        assert isinstance(begin, c.Begin)
        assert (begin.url, begin.namespace, begin.partitions) == ("redis://db", "stepwell", 64)
        assert (begin.settings.shard_id, begin.settings.limits.running) == (f"w/{index}", 7)
        assert begin.settings.box.endswith(f"/{index}-1")
    assert ended(parent) == 0


def test_a_shard_that_is_started_again_is_told_all_at_once(scene: Scene) -> None:
    parent = started(scene)
    scene.answer = drain_at_begin(parent)
    scene.processes[0].commits()
    scene.processes[0].ends("killed by SIGKILL")
    assert parent.wait() == 0
    [_, _, successor] = scene.processes
    begin = successor.told[1]
    assert isinstance(begin, c.Begin)
    assert begin.settings.shard_id == "w/0"
    assert begin.settings.box.endswith("/0-2")


def test_an_orderly_end_tells_what_was_cut_short(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    parent = started(scene)
    with caplog.at_level(logging.INFO):
        assert ended(parent) == 0
    assert all(c.Drain(3.0) in process.told for process in scene.processes)
    assert "got SIGTERM: draining, again to stop at once" in caplog.messages
    assert caplog.messages[-1] == "worker stopped; steps cut short: 2"
    assert scene.station.left


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("FlowLoadError", FlowLoadError),
        ("StoreUnfit", StoreUnfit),
        ("KeyError", StepwellError),
        ("ExecutionFailed", StepwellError),
    ],
)
def test_a_refusal_is_the_error_that_the_shard_met(scene: Scene, kind: str, expected: type[Exception]) -> None:
    def refuse(process: Talker, message: c.ToShard) -> None:
        if isinstance(message, c.Load):
            process.says(c.Failed(kind, "because"))

    scene.answer = refuse
    with pytest.raises(StepwellError) as caught:
        started(scene)
    assert (type(caught.value), str(caught.value)) == (expected, "because")
    assert not scene.station.left, "no server was looked for"


def test_a_server_that_does_not_answer_ends_all(scene: Scene) -> None:
    scene.error = StoreUnreachable("Redis refused the connection")
    with pytest.raises(StoreUnreachable, match="refused"):
        started(scene)
    assert [process.how for process in scene.processes] == ["killed by SIGKILL"] * 2
    assert scene.station.left


def test_a_worker_without_a_shard_is_refused(scene: Scene) -> None:
    with pytest.raises(UsageError, match="number of shards"):
        scene.parent(0)


def test_a_signal_while_it_starts_ends_it_without_a_fuss(scene: Scene) -> None:
    parent = scene.parent()

    def slow(process: Talker, message: c.ToShard) -> None:
        if isinstance(message, c.Load) and process.pid == 100:
            parent._signalled(signal.SIGINT, None)
        elif isinstance(message, c.Drain):
            process.says(c.Drained(0))
            process.ends("exit code 0")

    scene.answer = slow
    assert not parent.start().running
    assert parent.wait() == 0
    assert not any(isinstance(message, c.Begin) for process in scene.processes for message in process.told)


@pytest.mark.pain(42)
def test_what_a_shard_counted_in_the_file_of_its_parent_is_shown_after_its_death_and_its_successor_has_an_empty_one(
    scene: Scene,
) -> None:
    parent = started(scene)
    counts = []
    healed = "stepwell_healed_executions_total"

    def counting(process: Talker, message: c.ToShard) -> None:
        if isinstance(message, c.Begin):
            counts.append(parent.metric(healed))
            Sheet.open(Path(message.settings.sheet)).count(HEALED_EXECUTIONS).inc()
            counts.append(parent.metric(healed))
        drain(process, message)

    drain, scene.answer = drain_at_begin(parent), counting
    [first] = [each.settings.sheet for each in scene.processes[0].told if isinstance(each, c.Begin)]
    sheet = Sheet.open(Path(first))
    sheet.count(HEALED_EXECUTIONS).inc(4)
    sheet.count(COMMITS, "ok").inc()
    scene.processes[0].ends("killed by SIGKILL")
    assert parent.wait() == 0
    assert counts == [4, 5]
    assert parent.metric(healed) == 5


def test_a_second_signal_kills_all_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = started(scene)
    killed: list[int] = []
    exits: list[int] = []
    monkeypatch.setattr(module, "kill_group", killed.append)
    monkeypatch.setattr(os, "_exit", exits.append)
    parent._signalled(signal.SIGTERM, None)
    assert (killed, exits) == ([], [])
    parent._signalled(signal.SIGTERM, None)
    assert (killed, exits) == ([100, 101], [128 + signal.SIGTERM])
    assert not parent._aide._boxes.box(0, 1).parent.exists(), "boxes are left behind"
    assert parent.wait() == 0


def test_a_worker_that_gives_up_drains_the_others_and_ends_with_1(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    parent = started(scene)
    parent.fleet.failure = "shard w/0 died 5 times in a row"
    assert parent.wait() == 1
    assert all(c.Drain(3.0) in process.told for process in scene.processes)
    assert caplog.messages[-1] == "the worker ends: shard w/0 died 5 times in a row"


def test_an_error_of_the_loop_itself_leaves_no_shard_behind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = started(scene)

    def broken() -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(parent.fleet, "tick", broken)
    with pytest.raises(RuntimeError, match="on purpose"):
        parent.wait()
    assert [process.how for process in scene.processes] == ["killed by SIGKILL"] * 2


def test_trouble_revives_the_server_and_a_server_elsewhere_moves_the_shards(scene: Scene) -> None:
    parent = started(scene, 1)
    scene.station.moved = True
    scene.answer = drain_at_begin(parent)
    scene.processes[0].commits()
    scene.processes[0].says(c.Trouble(), c.Trouble())
    assert parent.wait() == 0
    assert scene.station.revivals == 1
    assert [process.how for process in scene.processes] == ["killed by SIGKILL", "exit code 0"]
