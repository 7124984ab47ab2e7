"""A world of one partition in which strangers write too, and good neighbours that must not notice."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

from fakeredis._helpers import SimpleError
from fakeredis._msgs import WRONGTYPE_MSG
from fakeredis.commands_mixins.streams_mixin import StreamsCommandsMixin
from fakeredis.model import XStream
from sim.bodies import work
from sim.harness import SimShard, World

from stepwell import Retry, current_step, flow, gather, sleep, step, wait_for
from stepwell.actors import store_events


@step(retry=Retry(max_attempts=3, base=2, factor=1, cap=2, jitter=0))
async def toil(failures: int = 0) -> int:
    await work(1)
    if current_step().attempt <= failures:
        raise ConnectionError("not yet")
    return current_step().attempt


@step(retry=Retry(max_attempts=1))
async def fails() -> None:
    raise ValueError("never")


@flow
async def job() -> int:
    return await toil() + await toil(1)


@flow
async def listens() -> object:
    return [await wait_for("word"), await toil()]


@flow
async def course(failures: int = 1) -> object:
    """Has something of everything: results, attempts, a backoff, a timer, a wait and branches."""
    first = await toil()
    await sleep(3)
    both = await gather(toil(failures), wait_for("word", timeout=50))
    await toil()
    return [first, both, await wait_for("last")]


@flow
async def doomed() -> None:
    await toil()
    await gather(fails(), toil())


FLOWS = (job, listens, course, doomed)
ROUNDS_MAX = 200
PATCHED = (StreamsCommandsMixin, "_parse_start_id")
_plain_start_id = StreamsCommandsMixin._parse_start_id


def _start_id(key: Any, start: bytes) -> Any:
    """As servers do, and fakeredis does not: XREAD of what is no stream is an error."""
    if key.value is not None and not isinstance(key.value, XStream):
        raise SimpleError(WRONGTYPE_MSG)
    return _plain_start_id(key, start)


class _Progress:
    """Nothing that strangers write may keep a shard busy for ever at one instant."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at = -1.0
        self._rounds = 0

    def __call__(self) -> None:
        now = self._world.clock.monotonic()
        self._rounds = self._rounds + 1 if now == self._at else 0
        self._at = now
        assert self._rounds < ROUNDS_MAX, f"it looks again and again at one instant; statuses: {self._world.statuses()}"


@contextlib.contextmanager
def fuzz_world(partitions: int = 1) -> Iterator[World]:
    """A world whose clock is everybody's; warnings about strangers' writings go nowhere."""
    world = World(FLOWS, partitions=partitions)
    world.checks.append(_Progress(world))

    def seconds() -> float:
        return world.clock.now_ms() / 1000

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with mock.patch.object(time, "time", seconds), mock.patch.object(*PATCHED, staticmethod(_start_id)):
            yield world
            world.close()
    finally:
        logging.disable(before)


class Neighbours:
    """Executions and commands beside what strangers wrote: all of them must have their effect."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._commands: list[tuple[str, str]] = []
        self._number = 0

    def start(self) -> None:
        """One job, and one that gets a signal."""
        self._number += 1
        self._world.start(job, f"good{self._number}")
        listener = f"ear{self._number}"
        self._world.start(listens, listener)
        self._commands.append((listener, self._world.signal(listener, "word", self._number)))

    @property
    def ids(self) -> list[str]:
        return [f"{name}{n}" for n in range(1, self._number + 1) for name in ("good", "ear")]

    def ended(self) -> bool:
        return self._world.ended(*self.ids)

    def check(self) -> None:
        """All have ended as they should, and every command was answered."""
        for n in range(1, self._number + 1):
            assert self._world.show(f"good{n}")["result"] == 3
            assert self._world.show(f"ear{n}")["result"] == [n, 1]
            assert self._world.ledger.attempts(f"good{n}", "toil#2") == [1, 2]
        for execution_id, command_id in self._commands:
            outcome = self._world.outcome(execution_id, command_id)
            assert outcome is not None
            assert outcome.applied, outcome.reason


def check_alive(world: World, shard: SimShard) -> None:
    """The shard lives, all its parts do, and no actor of an execution failed."""
    assert world.shards == [shard]
    assert {":dispatcher", ":healer", ":supervisor"} <= set(shard.scheduler.living)
    assert world.of_type(store_events.ActorFailed) == []
