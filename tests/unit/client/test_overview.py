"""A namespace at a glance: what is asked of Redis, and how foreign keys are taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from unit.client.conftest import World

from stepwell.client.moves import Peek
from stepwell.core.errors import StoreError, UsageError
from stepwell.core.overview import Overview
from stepwell.core.ownership import Member
from stepwell.core.records import Attempt, Failure, OpenOp, encode
from stepwell.core.vitals import Rates, RunningStep, Vitals, Work
from stepwell.store.overview import LISTS_MAX, PER_PARTITION

SECRET = "redis://:hunter2@db:6379"


def backs_off(world: World, execution_id: str, due_in: int, attempt: int = 3, last: int = 5) -> int:
    """An execution of which a step backs off; when it is due."""
    now = world.clock.now_ms()
    due = now + due_in
    failure = Failure("HttpError", f"503 of {SECRET}")
    world.start(execution_id)
    world.put(
        execution_id,
        told=False,
        **{
            "p:charge": encode(OpenOp("step", "backoff", "t", now, "charge", attempt=attempt, due_at=due)),
            "p:later": encode(OpenOp("step", "backoff", "t", now, "later", attempt=2, due_at=due + 9_000)),
            "p:wait": encode(OpenOp("signal", "waiting", "t", now, "go")),
            f"a:charge:{attempt - 1}": encode(Attempt(attempt - 1, now, failure, now, due, last)),
        },
    )
    part = world.keys.parts[world.keys.partition_of(execution_id)]
    world.redis.sadd(part.backoff, "checkout")
    world.redis.zadd(part.backoff_of + "checkout", {execution_id: due})
    return due


def lives(world: World, name: str = "w/0", **told: Any) -> None:
    now = world.clock.now_ms()
    world.redis.hset(world.keys.shards, name, msgspec.json.encode(Member(now, "i", "host,boot,12,1")))
    world.redis.hset(world.keys.workers, name, msgspec.json.encode({"at": now, "flows": {}, "version": "0.1.0"}))
    world.redis.hset(world.keys.vitals, name, msgspec.json.encode(Vitals(at=now, started_at=now, **told)))
    for part in world.keys.parts:
        world.redis.set(part.lease, f"{name}|1|i|host,boot,12,1")


def glance(world: World, before: Overview | None = None, limit: int = 20) -> Overview:
    found: Overview = world.run(world.talk.overview(before, limit))
    return found


@pytest.fixture(autouse=True)
def same_clock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's TIME is the world's."""
    ask = world.link.call_each

    def call_each(commands: Any) -> list[object]:
        now = world.clock.now_ms()
        raws = ask(commands)
        return [[now // 1000, now % 1000 * 1000] if c == ["TIME"] else r for c, r in zip(commands, raws, strict=True)]

    monkeypatch.setattr(world.link, "call_each", call_each)


def test_a_namespace_that_has_not_been_made_is_empty_and_stays_so(world: World) -> None:
    found = glance(world)
    assert {each.count for each in found.executions.values()} == {0}
    assert (found.shards, found.backoffs.executions, found.rate, found.unread) == ((), 0, None, "")
    assert world.redis.keys() == []


@pytest.mark.pain(45)
def test_who_backs_off_is_told_in_order_of_what_is_due(world: World) -> None:
    later, sooner = backs_off(world, "e1", 12_000), backs_off(world, "e2", 3_000, attempt=5)
    found = glance(world).backoffs
    assert [(e.execution, e.due_at, e.attempt) for e in found.next] == [("e2", sooner, 5), ("e1", later, 3)]
    first = found.next[0]
    assert (first.flow, first.path, first.max_attempts) == ("checkout", "charge", 5)
    assert (first.error_type, first.error) == ("HttpError", "503 of redis://:***@db:6379")
    assert (found.executions, found.by_flow[0].next_due_at) == (2, sooner)


def test_rows_are_read_once_for_each_due_time(world: World) -> None:
    backs_off(world, "e1", 12_000)
    before = glance(world)
    world.sent.clear()
    after = glance(world, before)
    assert after.backoffs == before.backoffs
    assert "HSCAN" not in world.sent
    backs_off(world, "e1", 20_000, attempt=4)
    assert glance(world, after).backoffs.next[0].attempt == 4
    assert world.sent.count("HSCAN") == 1


def test_only_so_many_rows_are_read(world: World) -> None:
    for number in range(12):
        backs_off(world, f"e{number}", number * 1_000)
    world.sent.clear()
    found = glance(world, limit=5).backoffs
    assert (found.executions, len(found.next)) == (12, 5)
    assert world.sent.count("HSCAN") == 5


def test_the_cost_does_not_depend_on_the_number_of_executions(world: World) -> None:
    lives(world)
    world.start("e")
    glance(world)
    world.redis.delete(*(part.inbox for part in world.keys.parts))
    world.sent.clear()
    glance(world)
    idle = len(world.sent)
    assert idle == PER_PARTITION * world.keys.partitions + 8
    for number in range(200):
        world.start(f"e{number}")
    world.sent.clear()
    glance(world)
    assert len(world.sent) <= idle + 4


def test_shards_say_what_they_do(world: World) -> None:
    now = world.clock.now_ms()
    longest = (RunningStep("e1", "checkout", "charge", 2, now - 5_000),)
    lives(world, executions=7, running=3, limit=36, longest=longest, work=Work(rates=Rates(2.5)))
    found = glance(world)
    (shard,) = found.shards
    assert (shard.name, shard.state, shard.partitions, shard.version) == ("w/0", "active", 4, "0.1.0")
    assert (shard.executions, shard.running, shard.limit, shard.pid) == (7, 3, 36, 12)
    assert found.partitions.held == 4
    assert found.rate is not None
    assert found.rate.steps == 2.5
    assert found.longest[0].since == now - 5_000


def test_the_age_of_the_oldest_command_is_told(world: World) -> None:
    at = world.clock.now_ms() - 14_000
    for n in range(3):
        world.redis.xadd(world.keys.inbox(2), {"type": "cancel"}, id=f"{at + n}-0")
    world.redis.xadd(world.keys.ingress, {"flow": "x"})
    inbox = glance(world).inbox
    assert (inbox.entries, inbox.oldest_at, inbox.partition, inbox.ingress) == (3, at, 2, 1)


@pytest.mark.pain(31)
def test_a_strangers_key_hides_nothing_else(world: World) -> None:
    lives(world)
    backs_off(world, "e1", 5_000)
    keys = world.keys
    other = next(p for p in keys.parts if p.number != keys.partition_of("e1"))
    for key in (other.dead, other.inbox, other.backoff, other.by["running"], keys.vitals, keys.ingress):
        world.redis.delete(key)
        world.redis.hset(key, "odd", "1") if key != keys.vitals else world.redis.set(key, "odd")
    world.redis.delete(other.lease)
    world.redis.set(other.lease, "not a lease")
    found = glance(world)
    assert f"the key '{keys.vitals}' in Redis is a string, not the hash" in found.unread
    assert [each.execution for each in found.backoffs.next] == ["e1"]
    assert found.partitions.held == keys.partitions - 1
    assert [each.running for each in found.shards] == [None]


def test_odd_values_are_passed_over(world: World) -> None:
    lives(world)
    part = world.keys.parts[0]
    world.redis.sadd(part.backoff, "checkout", b"\xff\xfe")
    world.redis.zadd(part.backoff_of + "checkout", {"no-row": 5, "endless": float("inf")})
    for key in (world.keys.shards, world.keys.workers, world.keys.vitals):
        world.redis.hset(key, "odd/0", b"\xff{")
        world.redis.hset(key, "odd/1", b'{"at": "soon"}')
    found = glance(world)
    assert [each.name for each in found.shards] == ["w/0"]
    assert [each.execution for each in found.backoffs.next] == ["no-row"]
    world.redis.zrem(part.backoff_of + "checkout", "no-row")
    found = glance(world)
    assert (found.backoffs.next, found.backoffs.executions) == ((), 0)
    assert "infinity" in found.unread


def test_those_that_are_due_next_are_found_in_any_list(world: World) -> None:
    now = world.clock.now_ms()
    for number in range(60):
        part = world.keys.parts[number % 4]
        flow = f"flow{number % 15}"
        world.redis.sadd(part.backoff, flow)
        world.redis.zadd(part.backoff_of + flow, {f"e{number}": now + 1_000 * (number * 37 % 60)})
    found = glance(world, limit=7).backoffs
    assert [each.due_at - now for each in found.next] == [1_000 * n for n in range(7)]
    assert (found.executions, {each.executions for each in found.by_flow}) == (60, {4})


def test_a_row_that_says_nothing_of_it_is_told_without(world: World) -> None:
    due = backs_off(world, "e1", 5_000)
    world.redis.delete(world.keys.row("e1"))
    (only,) = glance(world).backoffs.next
    assert (only.execution, only.flow, only.due_at, only.path, only.error) == ("e1", "checkout", due, None, None)
    world.put("e1", told=False, **{"p:charge": b"{", "p:x": b"\xff"})
    assert glance(world).backoffs.next[0].path is None


def test_more_lists_than_are_looked_through_are_admitted(world: World) -> None:
    part = world.keys.parts[0]
    world.redis.sadd(part.backoff, *(f"flow{n}" for n in range(LISTS_MAX + 5)))
    world.sent.clear()
    assert glance(world).unread == f"more than {LISTS_MAX} lists of backoffs"
    assert len(world.sent) <= 3 * LISTS_MAX + 200


def test_a_lost_reply_is_asked_for_again_and_an_outage_is_told(world: World) -> None:
    world.lose_reply_of("XLEN")
    assert glance(world).unread == ""
    assert sum(isinstance(move, Peek) for move in world.moves) >= 3
    world.go_away(60)
    with pytest.raises(StoreError):
        glance(world)


def test_a_limit_has_to_be_one(world: World) -> None:
    with pytest.raises(UsageError, match="from 1 to"):
        glance(world, limit=0)
