"""Whatever raises is supervised: the execution is rebuilt, or parked with its reason; all others live on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.harness import World

from stepwell import flow, sleep, step, wait_for
from stepwell.actors import store_events
from stepwell.actors.execution import ExecutionActor
from stepwell.core.inputs import SignalSent
from stepwell.flow.machine import Machine

MakeWorld = Callable[..., World]


@step
async def note(word: object) -> object:
    await work(1)
    return word


@flow
async def talks() -> list[object]:
    return [await note("first"), await wait_for("word"), await note("last")]


@flow
async def quick() -> object:
    return await note("quick")


class Broken(Exception):
    """What a test makes the machinery raise."""


def break_machine(monkeypatch: pytest.MonkeyPatch, times: int, execution_id: str = "e1", error=Broken) -> list[int]:
    """`Machine.feed` of a signal to one execution raises so many times."""
    feed = Machine.feed
    left = [times]

    def feed_or_raise(self: Machine, event: object) -> object:
        if self.checkpoint.execution_id == execution_id and left[0] > 0 and isinstance(event, SignalSent):
            left[0] -= 1
            raise error("on purpose")
        return feed(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(Machine, "feed", feed_or_raise)
    return left


@pytest.mark.pain(41)
@pytest.mark.parametrize("error", [Broken, SystemExit, KeyboardInterrupt])
def test_an_actor_that_raised_is_rebuilt_and_nothing_is_lost(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    world = make_world(talks, quick)
    shard = world.shard()
    world.start(talks, "e1")
    world.start(quick, "e2")
    world.run(lambda: world.ended("e2"))
    break_machine(monkeypatch, 2, error=error)
    command = world.signal("e1", "word", "go")
    world.run()
    assert world.show("e1")["result"] == ["first", "go", "last"]
    assert len(world.ledger.of("e1")) == 2
    failures = world.of_type(store_events.ActorFailed)
    assert [(each.execution_id, each.parked) for each in failures] == [("e1", False)] * 2
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert outcome.applied
    assert shard.scheduler.living == [":supervisor", ":dispatcher", ":healer"]
    assert world.of_type(store_events.SweepFound) == []


@pytest.mark.pain(41)
def test_the_third_failure_within_a_minute_parks_with_the_traceback_and_buries_the_poison(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(talks, quick)
    world.shard()
    world.start(talks, "e1")
    world.run()
    left = break_machine(monkeypatch, 1000)
    poison = world.signal("e1", "word", "go")
    world.start(quick, "e2")
    world.run(lambda: world.ended("e2"))
    world.run()
    assert left[0] == 997
    shown = world.show("e1")
    assert shown["status"] == "parked"
    assert shown["error"]["type"] == "crashed"
    assert "feed_or_raise" in shown["error"]["message"]
    [letter] = world.dead_letters()
    assert "Broken" in letter["reason"]
    outcome = world.outcome("e1", poison)
    assert outcome is not None
    assert not outcome.applied
    assert world.inbox() == []
    left[0] = 0
    world.retry("e1")
    world.signal("e1", "word", "again")
    world.run()
    assert world.show("e1")["result"] == ["first", "again", "last"]


@pytest.mark.pain(41)
def test_mail_that_waited_in_a_failing_actor_is_handled_by_its_successor(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(talks)
    shard = world.shard()
    world.start(talks, "e1")
    world.run()
    shard.paused.add("mirror")
    first = world.signal("e1", "other", 1)
    world.settle()  # its commit is in flight
    second = world.signal("e1", "word", "go")
    world.settle()  # it waits inside the actor
    world.client.hincrby(world.keys.row("e1"), "rev", 5)
    shard.paused.clear()
    world.run(lambda: world.ended("e1"), limit=4)
    assert world.of_type(store_events.SweepFound) == []
    world.audit.commands_answered([first, second])


@pytest.mark.pain(41)
def test_an_exception_while_an_actor_starts_is_supervised(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(quick)
    world.shard()
    start = ExecutionActor.on_start
    failures = [Broken("no start"), SystemExit("no start")]

    def on_start(self: ExecutionActor) -> None:
        if failures:
            raise failures.pop()
        start(self)

    monkeypatch.setattr(ExecutionActor, "on_start", on_start)
    world.start(quick, "e1")
    world.run()
    assert world.status("e1") == "completed"
    assert world.of_type(store_events.SweepFound) == []


@pytest.mark.pain(41)
def test_a_flow_that_raises_system_exit_ends_in_error_and_harms_nobody(make_world: MakeWorld) -> None:
    @flow
    async def quits() -> None:
        await note("x")
        raise SystemExit(3)

    @step
    async def exits() -> None:
        raise SystemExit(4)

    @flow
    async def step_exits() -> None:
        await exits.with_options(retry=exits.retry)()

    world = make_world(quits, step_exits, quick)
    shard = world.shard()
    world.start(quits, "e1")
    world.start(step_exits, "e2")
    world.start(quick, "e3")
    world.run()
    assert [world.status(each) for each in ("e1", "e2", "e3")] == ["error", "error", "completed"]
    assert world.show("e1")["error"]["type"] == "SystemExit"
    assert shard.scheduler.living == [":supervisor", ":dispatcher", ":healer"]


def test_a_subscriber_that_raises_is_left_out_and_the_execution_goes_on(make_world: MakeWorld) -> None:
    world = make_world(quick)
    shard = world.shard()
    calls: list[object] = []

    def bad(event: object) -> None:
        calls.append(event)
        raise Broken("subscriber")

    shard.context.bus.subscribe(bad)
    world.start(quick, "e1")
    world.run()
    assert world.status("e1") == "completed"
    assert len(calls) == 1


DAMAGE = [
    {"meta": b"\x80"},
    {"meta": b"{}"},
    {"status": b"dancing"},
    {"rev": b"many"},
    {"p:wait": b"[1]"},
    {"r:note": b'{"seq":"x"}'},
    {"s:x": b"{}"},
    {"applied": b"7"},
    {"input": None},
    {"meta": None},
]


@pytest.mark.pain(47)
def test_a_row_of_a_newer_version_is_left_alone(make_world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = make_world(talks, audited=False)
    world.shard()
    world.start(talks, "e1")
    world.run()
    world.crash()
    newer = b'{"flow":"talks","created_at":1,"input_hash":"","format":99}'
    world.client.hset(world.keys.row("e1"), "meta", newer)
    before = world.row("e1")
    shard = world.shard()
    for _ in range(3):
        shard.recall("e1")
        world.run_for(10)
    assert world.row("e1") == before
    assert shard.in_memory == []
    assert caplog.text.count("row of execution e1 has format 99") == 1
    assert world.of_type(store_events.LeftAlone) == [store_events.LeftAlone("row")]


@pytest.mark.pain(16)
@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_an_execution_that_has_ended_is_never_parked(make_world: MakeWorld, status: str) -> None:
    world = make_world(talks, audited=False)
    world.shard()
    world.start(talks, "e1")
    world.run()
    world.client.hset(world.keys.row("e1"), mapping={"status": status, "s:x": b"{}"})
    world.crash()
    before = world.row("e1")
    world.shard()
    command = world.retry("e1")
    world.run_for(30)
    assert world.row("e1") == before
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert not outcome.applied


@pytest.mark.pain(16)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: ",".join(f"{k}={v!r:.12}" for k, v in damage.items()))
def test_an_unreadable_row_is_a_named_state_and_others_go_on(
    make_world: MakeWorld, damage: dict[str, bytes | None]
) -> None:
    world = make_world(talks, quick, audited=False)
    world.shard()
    world.start(talks, "e1")
    world.run()
    world.crash()
    key = world.keys.row("e1")
    for field, value in damage.items():
        if value is None:
            world.client.hdel(key, field)
        else:
            world.client.hset(key, field, value)
    before = world.row("e1")
    shard = world.shard()
    command = world.signal("e1", "word", "go")
    world.start(quick, "e2")
    world.run(lambda: world.ended("e2"))
    world.run_for(30)
    assert world.of_type(store_events.ActorFailed) == []
    assert shard.in_memory == []
    after = world.row("e1")
    kept = set(before) - {"status", "rev", "commit", "updated_at", "error"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    if "status" not in damage and "rev" not in damage:
        assert world.statuses()["parked"] == ["e1"]
        assert b"unreadable row" in after["error"]
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert not outcome.applied
    assert world.inbox() == []
    assert len(world.ledger.of("e1")) == 1


@pytest.mark.pain(16)
def test_an_unreadable_queued_row_is_parked_and_its_doorbell_harms_nobody(make_world: MakeWorld) -> None:
    world = make_world(quick, audited=False)
    world.start(quick, "e1")
    world.client.hset(world.keys.row("e1"), "meta", "garbage")
    world.shard()
    world.start(quick, "e2")
    world.run()
    assert (world.status("e1"), world.status("e2")) == ("parked", "completed")
    assert world.of_type(store_events.ActorFailed) == []
    assert world.inbox() == []


def test_an_unreadable_row_that_was_repaired_goes_on_after_a_retry(make_world: MakeWorld) -> None:
    world = make_world(talks, audited=False)
    world.shard()
    world.start(talks, "e1")
    world.run()
    meta = world.row("e1")["meta"]
    world.crash()
    world.client.hset(world.keys.row("e1"), "meta", "garbage")
    world.shard().recall("e1")
    world.run()
    assert world.status("e1") == "parked"
    world.client.hset(world.keys.row("e1"), "meta", meta)
    world.retry("e1")
    world.signal("e1", "word", "go")
    world.run()
    assert world.show("e1")["result"] == ["first", "go", "last"]


@pytest.mark.pain(46)
def test_a_flow_that_is_not_here_waits_parked_until_a_worker_has_it(make_world: MakeWorld) -> None:
    world = make_world(talks, quick)
    world.shard(flows=[quick])
    world.start(talks, "e1")
    world.run()
    shown = world.show("e1")
    assert (shown["status"], shown["error"]["type"]) == ("parked", "not deployed here")
    assert "talks" in shown["error"]["message"]
    command = world.retry("e1")
    world.run()
    outcome = world.outcome("e1", command)
    assert outcome is not None
    assert "not deployed here" in outcome.reason
    world.crash()
    world.shard()
    world.run(lambda: world.ledger.of("e1"), limit=1)  # nobody has to address it
    world.signal("e1", "word", "go")
    world.run(lambda: world.ended("e1"))
    assert world.show("e1")["result"] == ["first", "go", "last"]


@pytest.mark.pain(34)
def test_code_that_does_not_fit_its_record_parks_with_both_paths_and_a_rollback_goes_on(make_world: MakeWorld) -> None:
    @step
    async def other() -> str:
        return "other"

    @flow(name="talks")
    async def changed() -> object:
        return await other()

    world = make_world(talks)
    world.shard()
    world.start(talks, "e1")
    world.run()
    world.crash()
    world.shard(flows=[changed]).recall("e1")
    world.run()
    shown = world.show("e1")
    assert (shown["status"], shown["error"]["type"]) == ("parked", "code diverged")
    assert "note" in shown["error"]["message"]
    assert "other" in shown["error"]["message"]
    world.crash()
    world.shard()
    world.retry("e1")
    world.signal("e1", "word", "go")
    world.run()
    assert world.show("e1")["result"] == ["first", "go", "last"]
    assert len(world.ledger.of("e1")) == 2


def test_an_execution_that_sleeps_out_of_memory_of_a_failed_actor_still_wakes(make_world: MakeWorld) -> None:
    @flow
    async def naps() -> str:
        await sleep(20)
        return "up"

    world = make_world(naps)
    shard = world.shard()
    world.start(naps, "e1")
    world.run_for(10)
    ref = shard.ref("e1")
    assert ref is not None
    ref.tell("nonsense")
    world.run()
    assert world.status("e1") == "completed"
    assert world.clock.monotonic() == pytest.approx(20, abs=0.01)


def test_what_an_actor_failed_with_shows_no_password(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def secret(_text: str) -> Broken:
        return Broken("can't connect to redis://user:hunter2@db/0, nor to https://x/?token=hunter2")

    world = make_world(talks)
    world.shard()
    world.start(talks, "e1")
    world.run()
    break_machine(monkeypatch, 3, error=secret)  # type: ignore[arg-type]
    command = world.signal("e1", "word", "go")
    world.run()
    assert world.status("e1") == "parked"
    outcome = world.outcome("e1", command)
    assert outcome is not None
    shown = [caplog.text, str(world.row("e1")), str(world.dead_letters()), outcome.reason]
    shown += [each.error for each in world.of_type(store_events.ActorFailed)]
    for text in shown:
        assert "can't connect to redis://" in text.replace("\\'", "'")
        assert "hunter2" not in text
