"""A shard's process: what it says to its parent, and when, whatever becomes of the shard."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from unit.worker.fleet_stage import pulse

from stepwell.core.errors import FlowLoadError
from stepwell.core.limits import Limits
from stepwell.worker import child as module
from stepwell.worker import control as c
from stepwell.worker.child import ShardProcess
from stepwell.worker.settings import ShardSettings

pytestmark = pytest.mark.threads
HANG_SECONDS = 50.0
LOAD = c.Load(0, ("flows.py",), c.LogSettings())
BEGIN = c.Begin("redis://db", "stepwell", 4, bytes(32), 1, ShardSettings("w/0", Limits(), 2))


class Shard:
    """A shard that notes what is asked of it."""

    def __init__(self) -> None:
        self.drained: list[float] = []
        self.given_up = False
        self.hurried = threading.Event()
        self.stopped = False
        self.error: Exception | None = None

    def drain(self, grace: float, _hurry: threading.Event) -> int:
        self.drained.append(grace)
        if self.error is not None:
            raise self.error
        return 3

    def give_up(self) -> None:
        self.given_up = True

    def stop(self) -> None:
        self.stopped = True

    def hurry(self) -> None:
        self.hurried.set()


class Hosted:
    """The shard with its metrics."""

    def __init__(self) -> None:
        self.shard = Shard()
        self.telemetry = self
        self.refreshed = 0
        self.started = False
        self.fail: Callable[[str], None]
        self.trouble: Callable[[], None]

    def refresh(self) -> None:
        self.refreshed += 1

    def tick_logs(self, all_of_it: bool = False) -> None: ...

    def start(self) -> None:
        self.started = True


class Scene:
    """A process on a thread, and the parent's ends of its pipes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosted = Hosted()
        self.killed = threading.Event()
        self.begun: list[c.Begin] = []
        self._hears, self.write = os.pipe()
        self._read, self._says = os.pipe()
        self._receiver: c.Receiver[c.ToParent] = c.Receiver(self._read, c.to_parent())
        self._heard: list[c.ToParent] = []
        self.code: int | None = None
        monkeypatch.setattr(module, "_hosted", self._host)
        monkeypatch.setattr(module, "_pulse", lambda _shard: pulse(problem="x"))
        monkeypatch.setattr(module, "PULSE_SECONDS", 0.01)
        monkeypatch.setattr(module, "load", lambda _targets: ())
        monkeypatch.setattr(module, "setup_logging", lambda *_, **__: None)
        for name in ("set_title", "calm_the_collector"):
            monkeypatch.setattr(module.process, name, lambda *_: None)
        monkeypatch.setattr(module.process, "kill_group", lambda _pid: self.killed.set())
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _host(self, begin: c.Begin, _registry: Any, fail: Callable[[str], None], trouble: Callable[[], None]) -> Hosted:
        self.begun.append(begin)
        self.hosted.fail, self.hosted.trouble = fail, trouble
        return self.hosted

    def _run(self) -> None:
        self.code = ShardProcess(self._hears, self._says).run()

    def tell(self, *messages: c.ToShard) -> None:
        for message in messages:
            c.send(self.write, message)

    def hear(self, kind: type[c.ToParent]) -> Any:
        """Wait for the next message of a kind; what comes before it is passed over."""
        while True:
            while self._heard:
                message = self._heard.pop(0)
                if isinstance(message, kind):
                    return message
            self._heard += self._receiver.receive()

    def ends(self) -> int | None:
        self.thread.join(HANG_SECONDS)
        assert not self.thread.is_alive()
        return self.code

    def close(self) -> None:
        os.close(self.write)
        assert self.killed.wait(HANG_SECONDS), "nobody is its parent any more"
        for fd in (self._hears, self._read, self._says):
            os.close(fd)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    made.thread.start()
    yield made
    if made.thread.is_alive():
        made.tell(c.Drain(0.0))
        made.ends()
    made.close()


def runs(scene: Scene) -> Scene:
    scene.tell(LOAD, BEGIN)
    scene.hear(c.Started)
    return scene


def test_it_tells_of_each_stage(scene: Scene) -> None:
    assert scene.hear(c.Hello).host_info.count(",") == 3
    scene.tell(LOAD)
    assert scene.hear(c.Loaded) == c.Loaded(())
    assert scene.begun == []
    scene.tell(BEGIN)
    assert scene.hear(c.Started).pulse.problem == "x"
    assert scene.begun == [BEGIN]
    assert scene.hosted.started
    assert scene.hear(c.Pulse).problem == "x"


def test_what_must_not_wait_is_done_while_the_main_thread_is_busy(scene: Scene) -> None:
    runs(scene).tell(c.Hurry())
    assert scene.hosted.shard.hurried.wait(HANG_SECONDS)


def test_levels_that_nobody_announces_are_set_before_each_pulse(scene: Scene) -> None:
    runs(scene)
    for pulses in range(1, 5):  # some of them may lie in the pipe already
        scene.hear(c.Pulse)
        assert scene.hosted.refreshed >= pulses


def test_a_drain_ends_it_in_good_order(scene: Scene) -> None:
    runs(scene).tell(c.Drain(7.5))
    assert scene.hear(c.Drained) == c.Drained(3)
    assert scene.ends() == 0
    assert scene.hosted.shard.drained == [7.5]
    assert scene.hosted.shard.stopped


@pytest.mark.parametrize("told", [(), (LOAD,)], ids=["before it loads", "before it begins"])
def test_a_drain_may_come_first(scene: Scene, told: tuple[c.ToShard, ...]) -> None:
    scene.tell(*told, c.Drain(7.5))
    assert scene.hear(c.Drained) == c.Drained(0)
    assert scene.ends() == 0
    assert scene.begun == []


def test_flows_that_do_not_load_are_a_refusal(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_targets: object) -> None:
        raise FlowLoadError("line 3 of flows.py: boom at redis://:hunter2@db")

    monkeypatch.setattr(module, "load", refuse)
    scene.tell(LOAD)
    failed = scene.hear(c.Failed)
    assert failed.kind == "FlowLoadError"
    assert failed.reason.startswith("line 3 of flows.py")
    assert "hunter2" not in failed.reason
    assert scene.ends() == 1


def test_a_part_that_fails_ends_it_in_good_order_and_that_is_no_drain(scene: Scene) -> None:
    runs(scene).hosted.fail("dispatcher failed: KeyError")
    assert scene.hear(c.Failed) == c.Failed("ShardFailed", "dispatcher failed: KeyError")
    assert scene.ends() == 1
    assert (scene.hosted.shard.given_up, scene.hosted.shard.drained) == (True, [])
    assert scene.hosted.shard.stopped


def test_a_drain_that_breaks_is_told_and_the_leases_go_back_all_the_same(scene: Scene) -> None:
    scene.hosted.shard.error = RuntimeError("flush broke")
    runs(scene).tell(c.Drain(1.0))
    assert scene.hear(c.Failed).reason == "unexpected RuntimeError: flush broke"
    assert scene.ends() == 1
    assert scene.hosted.shard.stopped


def test_trouble_is_told_and_holds_nobody_up(scene: Scene) -> None:
    runs(scene)
    for _ in range(1000):
        scene.hosted.trouble()
    assert scene.hear(c.Trouble)


def test_nonsense_from_the_parent_is_its_end(scene: Scene) -> None:
    runs(scene)
    os.write(scene.write, b"\xff" * 8)
    assert scene.killed.wait(HANG_SECONDS)
    scene.hosted.fail("so that the thread of this test ends")
