"""Descriptions, dead letters, workers."""

from __future__ import annotations

import msgspec
import pytest

from stepwell.core.errors import InvalidName, UnknownExecution, UsageError


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


@pytest.mark.parametrize("limit", [0, -1, 10**21, "5", 2.5, True])
def test_a_limit_is_a_positive_whole_number(world, limit):
    with pytest.raises(UsageError, match="limit"):
        world.run(world.talk.list(None, None, limit))
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
