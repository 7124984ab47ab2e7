"""The process dies at any commit, before it is sent or before its reply is acted on; another one goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from sim.harness import ShardDied, World
from sim.reference import RESULT, STEPS, play, reference
from sim.revs import nth

from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND, FailAt
from stepwell.store.requests import Commit

MakeWorld = Callable[..., World]
# begin; reserve; 3 of the gather's first attempts; 2 x (retry start, failure, retry start, success); sleep;
# signal; hopeless: failure, retry start, end; ship.
COMMITS = 1 + 1 + 3 + 2 * 4 + 1 + 1 + 3 + 1


def die() -> None:
    raise ShardDied


def run_with(make_world: MakeWorld, failpoints: FailAt, parents: bool = False) -> World:
    """The reference flow on a shard with these failpoints; whenever no shard is left, a new one starts."""
    world = make_world(reference)
    world.parents = parents
    world.shard(failpoints=failpoints)

    def revive() -> None:
        if not world.shards:
            world.shard()

    world.checks.append(revive)
    play(world)
    return world


def check_reference(world: World, *, interrupted: bool) -> None:
    shown = world.show("ref")
    assert shown["status"] == "completed"
    assert shown["result"] == RESULT
    by_path = {s["path"]: s for s in shown["steps"]}
    assert list(by_path) == list(STEPS)
    for path, attempts in STEPS.items():
        seen = world.ledger.attempts("ref", path)
        assert sorted(set(seen)) == attempts, f"{path} ran attempts {seen}"
        assert len(seen) - len(attempts) <= interrupted
        assert len(world.ledger.keys("ref", path)) == 1
        assert len(by_path[path]["attempts"]) == len(attempts)
    reran = sum(len(world.ledger.of("ref", path)) - len(attempts) for path, attempts in STEPS.items())
    assert reran <= 3 * interrupted, "at most what ran at the moment of the crash runs again"


def test_the_reference_run_makes_the_commits_that_the_crash_tests_count(make_world: MakeWorld) -> None:
    failpoints = FailAt()
    world = run_with(make_world, failpoints)
    check_reference(world, interrupted=False)
    assert failpoints.counts == {BEFORE_SEND: COMMITS, AFTER_REPLY: COMMITS}
    assert nth(int(world.row("ref")["rev"])) == COMMITS + 1
    assert 38.1 <= world.clock.monotonic() <= 39.6


@pytest.mark.pain(7, 25, 30)
@pytest.mark.parametrize("side", [BEFORE_SEND, AFTER_REPLY])
@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_a_crash_at_any_commit_loses_nothing_recorded(make_world: MakeWorld, side: str, number: int) -> None:
    world = run_with(make_world, FailAt(side, number, die), parents=number % 2 == 0)
    assert len(world.dead) == 1, "it crashed once"
    check_reference(world, interrupted=True)
    sleep_fact = next(wait for wait in world.show("ref")["waits"] if wait["path"] == "sleep")
    slept = sleep_fact["finished_at"] - sleep_fact["declared_at"]
    assert slept == 30_000, "the remaining delay holds over the crash"


def test_what_ran_when_its_process_died_is_counted_as_interrupted(make_world: MakeWorld) -> None:
    world = make_world(reference)
    world.shard()
    world.start(reference, "ref")
    world.run(lambda: world.ledger.of("ref", "reserve"))
    world.crash()
    world.shard()
    play(world)
    [reserve, *others] = world.show("ref")["steps"]
    assert (reserve["path"], reserve["interruptions"]) == ("reserve", 1)
    assert [s["interruptions"] for s in others] == [0] * 5
    assert world.ledger.attempts("ref", "reserve") == [1, 1]


def test_a_command_that_comes_before_recovery_does_not_hide_an_interruption(make_world: MakeWorld) -> None:
    world = make_world(reference)
    world.shard()
    world.start(reference, "ref")
    world.run(lambda: world.ledger.of("ref", "reserve"))
    world.crash()
    world.signal("ref", "word", "go")
    world.shard()
    world.run(lambda: world.ended("ref"))
    assert world.show("ref")["steps"][0]["interruptions"] == 1


def test_a_step_that_always_kills_its_process_ends_in_the_end(make_world: MakeWorld) -> None:
    world = make_world(reference)
    world.start(reference, "ref")

    def killer(run: object) -> None:
        raise ShardDied

    world.ledger.on_run.append(killer)
    while not world.ended("ref"):
        if not world.shards:
            world.shard()
        world.settle()
    assert world.status("ref") == "error"
    error = world.show("ref")["error"]
    assert error["type"] == "Interrupted"
    assert error["failed_step"]["path"] == "reserve"
    assert world.ledger.attempts("ref", "reserve") == [1] * 11


@pytest.mark.pain(12)
def test_the_reply_of_every_write_lost_once_changes_nothing(make_world: MakeWorld) -> None:
    def lengths(world: World) -> dict[str, int]:
        part = world.keys.parts[world.keys.partition_of("ref")]
        counted = {name: world.client.xlen(getattr(part, name)) for name in ("inbox", "events", "dead")}
        return {**counted, "seq": int(world.client.get(part.seq))}

    calm = run_with(make_world, FailAt())
    expected = (lengths(calm), nth(calm.show("ref")["rev"]))
    world = make_world(reference)
    shard = world.shard()
    lost: set[str] = set()

    def lose_once(request: object) -> str | None:
        if isinstance(request, Commit) and request.commit_id not in lost:
            lost.add(request.commit_id)
            return "lost"
        return None

    shard.judge(lose_once)
    play(world)
    check_reference(world, interrupted=False)
    assert len(lost) == COMMITS
    assert (lengths(world), nth(world.show("ref")["rev"])) == expected


@pytest.mark.pain(12)
@pytest.mark.parametrize("name", ["leases", "inbox"])
def test_lost_replies_of_leases_and_reads_change_nothing(make_world: MakeWorld, name: str) -> None:
    world = make_world(reference)
    world.lease_ttl_ms, world.renew_seconds = 10_000, 3.0
    turns = itertools.count()

    def lose_every_third() -> None:
        if next(turns) % 3 == 0 and not world.ended("ref"):
            world.weather.lose.add(name)

    world.checks.append(lose_every_third)
    world.shard()
    world.start(reference, "ref")
    world.signal("ref", "word", "go")
    world.run(lambda: world.ended("ref"))
    assert next(turns) > 10
    check_reference(world, interrupted=False)
    assert world.dead_letters() == []
