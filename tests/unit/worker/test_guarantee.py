"""A worker looks every minute whether its promises can still be kept."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import fakeredis
import pytest

from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.store_events import GuaranteeSeen
from stepwell.core.errors import StoreUnreachable
from stepwell.store.check import ServerFacts
from stepwell.store.durability import RELAXED
from stepwell.worker import guarantee
from stepwell.worker.guarantee import LOOK_SECONDS, Guarantee

GOOD = ServerFacts("redis://db", version=(7, 2), maxmemory=1, maxmemory_policy="noeviction", aof_enabled=True)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`looks(facts or error)` lets a minute pass and looks; it gives the labels that were told."""
    clock = VirtualClock()
    answers: list[Any] = []

    def check(_client: object, **_: Any) -> ServerFacts:
        if isinstance(answers[-1], Exception):
            raise answers[-1]
        return answers[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(guarantee, "check_server", check)
    told: list[Any] = []
    watch = Guarantee(fakeredis.FakeRedis(), RELAXED, "stepwell:probe", clock.monotonic, told.append)

    def looks(answer: Any, seconds: float = LOOK_SECONDS) -> list[dict[str, str]]:
        answers.append(answer)
        told.clear()
        watch.look()
        clock.advance(seconds)
        assert all(isinstance(event, GuaranteeSeen) for event in told)
        return [event.labels for event in told]

    return looks


@pytest.mark.pain(15)
def test_a_setting_that_is_changed_while_it_runs_is_told_once(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert [each["kept"] for each in stage(GOOD)] == ["yes"]
    assert stage(GOOD) == []
    evicting = replace(GOOD, maxmemory_policy="allkeys-lru")
    with caplog.at_level(logging.ERROR):
        assert [(each["kept"], each["eviction"]) for each in stage(evicting)] == [("no", "allkeys-lru")]
        assert stage(evicting) == []
    assert [("may evict" in record.message) for record in caplog.records] == [True]
    assert [each["kept"] for each in stage(GOOD)] == ["yes"]


def test_nobody_asks_more_often_than_once_a_minute(stage: Any) -> None:
    stage(GOOD, seconds=1)
    assert stage(replace(GOOD, appendfsync="always"), seconds=LOOK_SECONDS - 2) == []
    assert stage(replace(GOOD, appendfsync="no"), seconds=2) == []
    assert [each["aof"] for each in stage(replace(GOOD, appendfsync="no"))] == ["no"]


def test_a_server_that_does_not_answer_changes_nothing(stage: Any) -> None:
    stage(GOOD)
    assert stage(StoreUnreachable("gone")) == []
    assert stage(GOOD) == []
