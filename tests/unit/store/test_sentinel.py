"""Sentinels are asked in turn where the primary is; only one that they see alive counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError as Refused

from stepwell.store.sentinel import AsyncWatchers, Watchers

ALIVE: dict[str, Any] = {"ip": "10.0.0.1", "port": 7000, "is_master": True, "is_sdown": False, "is_odown": False}


class Sentinel:
    """Answers SENTINEL MASTERS, or does not."""

    def __init__(self, answer: dict[str, dict[str, Any]] | redis.RedisError, blocking: bool) -> None:
        self.answer, self.blocking, self.asked = answer, blocking, 0

    def sentinel_masters(self) -> Any:
        self.asked += 1
        return self._give() if self.blocking else self._give_later()

    def _give(self) -> dict[str, dict[str, Any]]:
        if isinstance(self.answer, redis.RedisError):
            raise self.answer
        return self.answer

    async def _give_later(self) -> dict[str, dict[str, Any]]:
        return self._give()


@pytest.fixture(params=[True, False], ids=["blocking", "asyncio"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def asked(blocking: bool, *answers: dict[str, dict[str, Any]] | redis.RedisError) -> tuple[list[Sentinel], Any]:
    """Sentinels that answer so, and a function that asks them for the primary named `main`."""
    sentinels = [Sentinel(answer, blocking) for answer in answers]
    watchers: Any = Watchers([]) if blocking else AsyncWatchers([])
    watchers.sentinels = list(sentinels)

    def find() -> tuple[str, int]:
        found = watchers.discover_master("main")
        return found if blocking else asyncio.run(found)

    return sentinels, find


def test_whoever_answered_is_asked_first_the_next_time_and_is_asked_every_time(blocking: bool) -> None:
    sentinels, find = asked(blocking, Refused("no"), {"main": ALIVE})
    assert find() == ("10.0.0.1", 7000)
    sentinels[1].answer = {"main": {**ALIVE, "ip": "10.0.0.2"}}
    assert find() == ("10.0.0.2", 7000), "a failover is noticed by the next connection"
    assert [each.asked for each in sentinels] == [1, 2]


@pytest.mark.pain(11)
@pytest.mark.parametrize("state", [{"is_sdown": True}, {"is_odown": True}, {"is_master": False}])
def test_a_primary_that_is_seen_dead_does_not_count(blocking: bool, state: dict[str, bool]) -> None:
    _, find = asked(blocking, {"main": {**ALIVE, **state}}, {"main": {**ALIVE, "ip": "10.0.0.9"}})
    assert find() == ("10.0.0.9", 7000)
    _, find = asked(blocking, {"main": {**ALIVE, **state}})
    with pytest.raises(redis.ConnectionError, match="has no primary that lives"):
        find()


def test_why_nobody_knows_is_told(blocking: bool) -> None:
    _, find = asked(blocking, Refused("no way."), redis.TimeoutError("too late."))
    with pytest.raises(redis.ConnectionError, match=r"no Sentinel that answers \(too late\): check"):
        find()
    _, find = asked(blocking, {"other": ALIVE}, Refused("no"))
    with pytest.raises(redis.ConnectionError, match="know no primary named 'main'"):
        find()
