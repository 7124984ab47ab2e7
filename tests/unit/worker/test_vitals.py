"""What a shard says of its work once a second, and that nothing depends on it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import fakeredis
import msgspec
import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from stepwell.actors.kit.clock import VirtualClock
from stepwell.core.vitals import RUNNING_MAX, Rates, RunningStep, Vitals, Work
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.scripts import Scripts
from stepwell.store.vitals import vitals_of
from stepwell.worker.vitals import FORGET_SECONDS, TELL_SECONDS, VitalSigns


class Runner:
    """Stands in for the step runner: `began` are the times at which what runs began."""

    def __init__(self) -> None:
        self.running = 0
        self.began: list[int] = []
        self.set_apart = (0, 0)

    def at_work(self) -> list[Any]:
        return [
            SimpleNamespace(
                began_at=at,
                order=SimpleNamespace(
                    context=SimpleNamespace(execution_id=f"e{at}", flow="checkout", path="charge", attempt=2)
                ),
            )
            for at in self.began
        ]


class Stage:
    """A shard's vitals on a server in memory, which can go away."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = fakeredis.FakeServer(version=(6, 2))
        self.client = fakeredis.FakeRedis(server=self.server, retry=Retry(NoBackoff(), 0))
        self.keys = Keys("t", 4)
        self.runner = Runner()
        self.work = Work(steps=7, rates=Rates(steps=1.5))
        self.signs = self.made("w/0")

    def made(self, shard_id: str, life: int = 1) -> VitalSigns:
        return VitalSigns(
            Link(self.client, self.keys, Scripts()),
            shard_id,
            life,
            self.clock,
            cast("Any", self.runner),
            36,
            lambda: 12,
            lambda: self.work,
            lambda: {"kept": "yes"},
            lambda: 1.5,
        )

    def look(self, seconds: float = TELL_SECONDS) -> dict[str, Vitals]:
        self.clock.advance(seconds)
        self.signs.look()
        return vitals_of(self.client.hgetall(self.keys.vitals))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_entry_says_how_the_shard_is(stage: Stage) -> None:
    stage.runner.running, stage.runner.began, stage.runner.set_apart = 5, [3_000, 1_000, 2_000], (2, 1)
    began = stage.clock.now_ms() + 1000
    stage.look()
    (told,) = stage.look().values()
    assert (told.at, told.started_at, told.life) == (stage.clock.now_ms(), began, 1)
    assert (told.executions, told.running, told.queued, told.waits_apart, told.limit) == (12, 3, 2, 1, 36)
    assert told.longest[0] == RunningStep("e1000", "checkout", "charge", 2, 1_000)
    assert [each.since for each in told.longest] == [1_000, 2_000, 3_000]
    assert (told.work, told.guarantee) == (stage.work, {"kept": "yes"})


def test_it_is_told_once_a_second(stage: Stage) -> None:
    first = stage.look()
    assert stage.look(TELL_SECONDS / 2) == first
    assert stage.look(TELL_SECONDS / 2) != first


def test_only_what_runs_longest_is_told(stage: Stage) -> None:
    stage.runner.began = list(range(1, 5_000))
    (told,) = stage.look().values()
    assert [each.since for each in told.longest] == list(range(1, RUNNING_MAX + 1))
    assert told.running == 4_999


def test_an_outage_is_no_trouble(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.server.connected = False
    with caplog.at_level(logging.INFO):
        stage.clock.advance(TELL_SECONDS)
        stage.signs.look()
    assert caplog.messages == []
    stage.server.connected = True
    assert set(stage.look()) == {"w/0"}


def test_a_strangers_key_there_is_told_once_and_is_no_trouble(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.client.set(stage.keys.vitals, "odd")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            stage.clock.advance(TELL_SECONDS)
            stage.signs.look()
    assert len(caplog.messages) == 1
    assert "what `stepwell top` shows of this shard can't be written" in caplog.messages[0]


def test_who_leaves_takes_its_entry_off_and_who_died_is_forgotten_after_an_hour(stage: Stage) -> None:
    stage.client.hset(stage.keys.vitals, "odd", b"{")
    old = Vitals(at=stage.clock.now_ms(), started_at=1)
    stage.client.hset(stage.keys.vitals, "dead/0", msgspec.json.encode(old))
    assert set(stage.look()) == {"w/0", "dead/0"}
    assert b"odd" not in stage.client.hgetall(stage.keys.vitals)
    assert set(stage.look(FORGET_SECONDS + 1)) == {"w/0"}
    stage.signs.leave()
    assert stage.client.hgetall(stage.keys.vitals) == {}
