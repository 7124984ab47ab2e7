"""The composition root: what each lease round does, and an end in good order whatever has failed before."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import msgspec
import pykka
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from unit.actors.told import WaitingBox

from stepwell import flow, step
from stepwell.actors.blackbox import BlackBox
from stepwell.actors.boxreport import read_box
from stepwell.actors.bus import Bus
from stepwell.actors.messages import GraceOver
from stepwell.actors.runner import StepOrder
from stepwell.core.limits import Limits
from stepwell.core.ownership import Member
from stepwell.flow.context import StepContext
from stepwell.flow.definitions import Step
from stepwell.flow.operations import StepCall
from stepwell.flow.registry import Registry
from stepwell.metrics.instruments import EXECUTIONS_RUNNING_LIMIT, LEASES_HELD, STEPS_LIMIT
from stepwell.metrics.sheet import Sheet
from stepwell.store import scripts
from stepwell.store.link import LinkDown
from stepwell.store.namespace import open_namespace
from stepwell.store.requests import Load
from stepwell.worker import shard as shard_module
from stepwell.worker.identity import host_info
from stepwell.worker.postmortem import examine
from stepwell.worker.shard import RunningShard, ShardParts
from stepwell.worker.telemetry import Telemetry

HANG_SECONDS = 50.0


@step
async def fine() -> int:
    return 1


@flow
async def calm() -> int:
    return await fine()


class Stage:
    """A shard on a server in memory; it notes why it failed."""

    def __init__(self) -> None:
        self.server = fakeredis.FakeServer(version=(6, 2))
        self.client = self.connect("test")
        self.namespace = open_namespace(self.client, "t", 4, bytes(32), new_secret=lambda: bytes(32))
        self.keys = self.namespace.keys
        self.failures: list[str] = []
        self.failed = threading.Event()
        self.shard = RunningShard(
            ShardParts(
                namespace=self.namespace,
                registry=Registry([calm]),
                connect=self.connect,
                bus=Bus(),
                observer=lambda _event: None,
                shard_id="me",
                limits=Limits(running=10),
                threads=2,
                on_failure=self.fail,
                on_dead_letter=lambda _message, _name: None,
                on_trouble=lambda: None,
            )
        )

    def connect(self, _name: str) -> redis.Redis:
        return fakeredis.FakeRedis(server=self.server, retry=Retry(NoBackoff(), 0), socket_timeout=3)

    def fail(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()

    @property
    def held(self) -> int:
        """How many partitions are held at the server."""
        return sum(self.client.exists(part.lease) for part in self.keys.parts)

    @property
    def heartbeats(self) -> dict[str, Any]:
        found = self.client.hgetall(self.keys.workers)
        return {name.decode(): msgspec.json.decode(beat) for name, beat in found.items()}


class Deaf:
    """Stands for a dispatcher until the shard is started."""

    def tell(self, _message: object) -> None: ...


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.shard._leases.dispatcher = Deaf()  # type: ignore[assignment]
    yield made
    made.shard.runner._loop.close()  # of a shard that was never started


def test_a_shard_says_what_it_does_at_this_moment(stage: Stage) -> None:
    before = stage.shard.now()
    assert (before.leases, before.executions, before.mail) == (0, 0, {"dispatcher": 0, "mirror": 0})
    stage.shard._leases.round()
    stage.shard.mirror.send(None, Load("e1"))
    now = stage.shard.now()
    assert (now.leases, now.mail["mirror"]) == (4, 1)
    assert now.bodies == {"loop": 0, "thread": 0, "process": 0}
    stage.shard.holdings.extend(0, 0.0)
    assert stage.shard.now().leases == 3, "that one may be another's by now"
    stage.shard.holdings.extend(0, stage.shard.clock.monotonic() + 60)
    sheet = Sheet.in_memory()
    telemetry = Telemetry(sheet)
    telemetry.watch(stage.shard)
    telemetry.refresh()
    shown = {
        (each.full_name, *values): level.numbers[level.at]
        for each in (LEASES_HELD, STEPS_LIMIT, EXECUTIONS_RUNNING_LIMIT)
        for values in ([("loop",), ("thread",), ("process",)] if each is STEPS_LIMIT else [()])
        if (level := sheet.level(each, *values))
    }
    assert list(shown.values()) == [4, 1000, 2, 4, 10]


def test_a_lease_round_reads_no_file_of_the_package(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_package: str) -> None:
        raise FileNotFoundError("the package is being upgraded")

    monkeypatch.setattr(scripts, "files", gone)
    stage.shard._leases.round()
    assert stage.held == 4
    stage.client.delete(stage.keys.meta)  # also where the namespace is written anew, and scripts are loaded again
    stage.client.script_flush()
    stage.shard._leases.round()
    assert stage.client.hget(stage.keys.meta, "partitions") == b"4"
    assert list(stage.heartbeats) == ["me"]


def test_a_heartbeat_has_the_servers_time_and_not_a_clock_that_is_still_catching_up(stage: Stage) -> None:
    leases = stage.shard._leases
    now = [1_700_000_000_000]
    leases._store.server_time_ms = lambda: now[0]  # type: ignore[method-assign]
    leases.round()
    for lag_ms in (-3_600_000, -9_000, 9_000, 3_600_000):
        now[0] += lag_ms
        leases.round()
        assert stage.heartbeats["me"]["at"] == now[0]


def test_heartbeats_of_workers_that_are_long_gone_are_cleared_away_now_and_then(stage: Stage) -> None:
    leases = stage.shard._leases
    stage.client.hset(stage.keys.workers, "old", b'{"at": 1}')
    leases.round()
    assert list(stage.heartbeats) == ["me"]
    stage.client.hset(stage.keys.workers, "old", b'{"at": 1}')
    leases.round()
    assert "old" in stage.heartbeats, "not each time"
    stage.shard._forget_due = 0.0
    leases.round()
    assert list(stage.heartbeats) == ["me"]


@pytest.mark.threads
@pytest.mark.parametrize("broken", ["dispatcher", "supervisor", "scheduler", "stepwell-inbox", "stepwell-mirror"])
def test_a_shard_ends_in_good_order_after_any_part_has_failed(
    stage: Stage, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_module, "FLUSH_SECONDS", 0.2)
    shard = stage.shard

    def crash(*_: object) -> None:
        raise RuntimeError("on purpose, at redis://:hunter2@db")

    if broken == "stepwell-inbox":
        monkeypatch.setattr(shard._loops[1], "_run_once", crash)
    elif broken == "stepwell-mirror":
        monkeypatch.setattr(shard._loops[0], "_run_once", crash)
    shard.start()
    if broken == "scheduler":  # once it has spawned all: a shard that can't is refused at its start
        monkeypatch.setattr(shard.scheduler.timer_heap, "fire", crash)
        shard._context.supervisor.tell("its turn never comes")
    elif broken in ("dispatcher", "supervisor"):
        getattr(shard._context, broken).tell("nonsense")
    assert stage.failed.wait(HANG_SECONDS)
    assert stage.held == 4
    shard.give_up()
    shard.stop()
    assert stage.held == 0
    assert stage.heartbeats == {}
    assert stage.failures[0].startswith(f"{broken} failed: ")
    assert "hunter2" not in "".join(stage.failures)


def begin(shard: RunningShard, body: Step[Any, Any]) -> WaitingBox:
    """An attempt in partition 0; its outcome."""
    box = WaitingBox()
    context = StepContext("e1", "f", "held", "held", 1, "token", "e1:token", 7)
    lease = shard.holdings.lease(0)
    assert lease is not None
    shard.runner.start(StepOrder(0, lease, StepCall(body, (), {}), context), box)  # type: ignore[arg-type]
    return box


@pytest.mark.pain(35)
@pytest.mark.threads
@pytest.mark.parametrize("end", ["a drain", "a drain that can't tell it", "a failed part", "no drain"])
def test_what_runs_at_the_end_is_free_for_others_at_once_only_where_it_was_told(
    stage: Stage, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, over = threading.Event(), threading.Event()

    @step(name="held")
    def held() -> None:
        entered.set()
        over.wait(HANG_SECONDS)

    shard = stage.shard
    shard.start()
    box = begin(shard, held)
    assert entered.wait(HANG_SECONDS)
    if end == "a drain that can't tell it":
        monkeypatch.setattr(shard, "_flush", lambda *_: False)
    if end == "a failed part":
        shard.give_up()
        assert box.empty
    elif end != "no drain":
        assert shard.drain(0.0, threading.Event()) == 1
        assert isinstance(box.next(), GraceOver)
    shard.stop()
    over.set()
    told = end == "a drain"
    assert shard._leases._holds_on == (not told), "nothing is handed over once it is cut off"
    assert stage.held == (0 if told else 1)
    assert stage.client.exists(stage.keys.parts[0].lease) == (not told)
    assert box.empty


@pytest.mark.pain(8)
@pytest.mark.threads
def test_what_a_failed_part_cuts_off_is_in_the_black_box_after_it_was_cancelled(stage: Stage, tmp_path: Path) -> None:
    entered, ended = threading.Event(), threading.Event()

    @step(name="held")
    async def held() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    path = tmp_path / "box"
    shard = RunningShard(replace(stage.shard._parts, box=BlackBox.create(path, 8)))
    shard.start()
    begin(shard, held)
    assert entered.wait(HANG_SECONDS)
    shard.give_up()
    shard.stop()
    assert ended.wait(HANG_SECONDS)
    found = examine(stage.client, stage.keys, scripts.Scripts(), host_info(), read_box(path), "me")
    assert (found.partitions, found.interrupted, found.named) == ((0,), 1, ())
    assert stage.held == 0


@pytest.mark.threads
@pytest.mark.parametrize("error", [pykka.ActorDeadError("gone"), pykka.Timeout("slow")], ids=["dead", "slow"])
def test_a_drain_gives_up_on_a_dispatcher_that_does_not_answer(
    stage: Stage, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    shard = stage.shard
    shard.start()

    class Silent:
        def tell(self, _message: object) -> None: ...

        def ask(self, _message: object, **_options: object) -> None:
            raise error

    shard._context.dispatcher = Silent()  # type: ignore[assignment]
    shard.drain(0.0, threading.Event())
    assert "may not be written" in caplog.text
    shard.stop()
    assert stage.held == 0


def test_while_a_shard_drains_it_takes_in_nothing_and_still_tells_how_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = stage.shard
    done: list[str] = []
    monkeypatch.setattr(shard._vitals, "look", lambda: done.append("told"))
    monkeypatch.setattr(shard._ingress, "run_once", lambda: done.append("took in"))
    monkeypatch.setattr(shard_module, "DRAINING_PAUSE_SECONDS", 0.0)
    shard._ingress_loop._run_once()
    monkeypatch.setattr(shard, "_flush", lambda *_: None)
    shard._context.dispatcher = Deaf()  # type: ignore[assignment]
    assert shard.drain(0.0, threading.Event()) == 0
    shard._ingress_loop._run_once()
    assert done == ["told", "took in", "told"]


@pytest.mark.threads
def test_partitions_are_given_back_also_where_the_threads_do_not_end_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = stage.shard
    shard.start()
    stop = shard.scheduler.stop

    def stop_and_raise(timeout: float) -> bool:
        stop(timeout)
        raise RuntimeError("on purpose")

    monkeypatch.setattr(shard.scheduler, "stop", stop_and_raise)
    with pytest.raises(RuntimeError, match="on purpose"):
        shard.stop()
    assert stage.held == 0
    shard._gone.set()
    assert shard._loops[0].stop(HANG_SECONDS)
    shard.runner.stop(1.0)


@pytest.mark.threads
@pytest.mark.parametrize("lacks", ["scheduler", "redis"])
def test_a_drain_does_not_wait_for_heirs_where_nothing_can_be_handed_over(
    stage: Stage, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = stage.shard
    shard.start()
    host = "elsewhere,boot,1,1"
    now = shard._members.read().server_ms
    shard._members.beat("other/0", Member(now, "i", host))
    shard._leases.hurry()
    deadline = time.monotonic() + HANG_SECONDS
    while not shard._leases.has_heirs and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    if lacks == "scheduler":
        shard.scheduler.stop(HANG_SECONDS)
    else:
        monkeypatch.setattr(shard_module, "FLUSH_SECONDS", 0.05)
        monkeypatch.setattr(shard._members, "read", lambda: (_ for _ in ()).throw(LinkDown("away")))
    assert shard.drain(1e6, threading.Event()) == 0
    monkeypatch.undo()
    shard.stop()
