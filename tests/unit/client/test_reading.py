"""Descriptions, listings, dead letters, workers."""

from __future__ import annotations

import msgspec
import pytest

from stepwell.client import reading
from stepwell.core.errors import InvalidName, UnknownExecution, UsageError


def listed(world, status=None, flow=None, limit=100):
    return [line["id"] for line in world.run(world.talk.list(status, flow, limit))]


def at(world, execution_id, score, status="queued"):
    """Say when an execution reached its status."""
    world.put(execution_id, status=status, updated_at=score)
    partition = world.keys.partition_of(execution_id)
    for other in ("queued", "running", "completed"):
        world.redis.zrem(world.keys.by(partition, other), execution_id)
    world.redis.zadd(world.keys.by(partition, status), {execution_id: score})


def test_a_description_right_after_the_start_knows_the_execution(world):
    world.start("e1", n=5)
    found = world.run(world.talk.describe("e1"))
    assert (found["id"], found["flow"], found["status"], found["input"], found["rev"]) == (
        "e1",
        "checkout",
        "queued",
        {"n": 5},
        1,
    )
    assert "unreadable" not in found


def test_an_unknown_execution_can_not_be_described(world):
    with pytest.raises(UnknownExecution):
        world.run(world.talk.describe("e9"))
    with pytest.raises(InvalidName):
        world.run(world.talk.describe(""))


def test_listings_are_newest_first_over_all_statuses_and_partitions(world):
    for n in range(20):
        world.start(f"e{n}")
        at(world, f"e{n}", 1000 + n, ("queued", "running", "completed")[n % 3])
    assert listed(world) == [f"e{n}" for n in reversed(range(20))]
    assert listed(world, "running", limit=3) == ["e19", "e16", "e13"]
    (line,) = world.run(world.talk.list("completed", None, 1))
    assert line["created_at"] > 1_600_000_000_000
    assert (line["id"], line["flow"], line["status"], line["updated_at"]) == ("e17", "checkout", "completed", 1017)


def test_a_rare_flow_is_found_behind_many_others(world, monkeypatch):
    monkeypatch.setattr(reading, "SEARCH_PAGE", 4)
    for n in range(30):
        world.start(f"e{n}", flow="rare" if n % 10 == 0 else "checkout")
        at(world, f"e{n}", 1000 + n)
    assert listed(world, flow="rare") == ["e20", "e10", "e0"]
    assert listed(world, "queued", "rare", 2) == ["e20", "e10"]
    assert listed(world, flow="none") == []


def test_what_moved_or_vanished_since_the_index_was_read_is_left_out(world):
    for name in ("e1", "e2", "e3"):
        world.start(name)
    world.put("e1", status="running")
    world.redis.delete(world.keys.row("e2"))
    assert listed(world, "queued") == ["e3"]
    assert sorted(listed(world)) == ["e1", "e3"]


def test_a_row_with_an_unreadable_meta_is_still_listed(world):
    world.start("e1")
    world.put("e1", meta=b"garbage", updated_at=b"soon")
    (line,) = world.run(world.talk.list(None, None, 5))
    assert (line["id"], line["flow"], line["created_at"], line["updated_at"]) == ("e1", "", None, None)


def test_an_unknown_status_is_refused_with_what_it_may_have_meant(world):
    with pytest.raises(UsageError, match=r"did you mean error\?"):
        listed(world, "errors")
    with pytest.raises(UsageError, match="there are queued, running"):
        listed(world, "zzz")


@pytest.mark.parametrize("limit", [0, -1, "5", 2.5, True])
def test_a_limit_is_a_positive_whole_number(world, limit):
    with pytest.raises(UsageError, match="limit"):
        listed(world, limit=limit)
    with pytest.raises(UsageError, match="limit"):
        world.run(world.talk.dead_letters(limit))


def test_living_workers_are_told_with_their_flows(world):
    world.worker("w1", checkout={"n": True})
    world.worker("w2", age_ms=60_000)
    (worker,) = world.run(world.talk.workers())
    assert (worker["id"], worker["host"], worker["pid"], worker["flows"]) == ("w1", "", None, ["checkout"])


def test_a_workers_host_and_process_can_be_read(world):
    world.worker("w1", checkout={"n": True}, refill={})
    beat = msgspec.json.decode(world.redis.hget(world.keys.workers, "w1"))
    beat["host"] = "shop-1/4026531836,0f3c-boot,4711,99"
    world.redis.hset(world.keys.workers, "w1", msgspec.json.encode(beat))
    (worker,) = world.run(world.talk.workers())
    assert worker == {"id": "w1", "host": "shop-1", "pid": 4711, "at": beat["at"], "flows": ["checkout", "refill"]}
