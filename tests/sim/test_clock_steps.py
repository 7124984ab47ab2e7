"""The server's clock steps by an hour while executions wait out of memory, and shards follow it with the real clock."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable

import pytest
from sim.bodies import work
from sim.clocks import shard_clock
from sim.harness import World

from stepwell import Retry, current_step, flow, sleep, step

MakeWorld = Callable[..., World]
HOUR_MS = 3_600_000
DELAY = 200.0
SLEEP = 150.0


@step(retry=Retry(max_attempts=3, base=DELAY, factor=1, cap=DELAY, jitter=0))
async def patient() -> int:
    if current_step().attempt < 3:
        raise ConnectionError("come back much later")
    return current_step().attempt


@step
async def note() -> None:
    await work(0.5)


@flow
async def backs_off() -> int:
    return await patient()


@flow
async def sleeps() -> None:
    for _ in range(2):
        await sleep(SLEEP)
        await note()


class Scene:
    """A world whose server's clock can be stepped; what begins is noted in seconds that really pass."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, shards: int) -> None:
        self.world = world
        self.patch = patch
        self.stepped_ms = 0
        self.begun: dict[str, list[float]] = defaultdict(list)
        self._seen = 0
        world.share()
        world.checks.append(self._look)
        for _ in range(shards):
            self.shard()
        world.run_for(10)

    def shard(self) -> None:
        self.world.shard(clock=shard_clock(self.world.clock))

    def _look(self) -> None:
        runs = self.world.ledger.runs
        for run in runs[self._seen :]:
            self.begun[run.execution_id].append(self.world.clock.monotonic())
        self._seen = len(runs)

    def step(self, ms: int) -> None:
        self.stepped_ms += ms
        self.patch.setattr(time, "time", lambda: (self.world.clock.now_ms() + self.stepped_ms) / 1000)

    def gaps(self, execution_id: str) -> list[float]:
        return [later - earlier for earlier, later in itertools.pairwise(self.begun[execution_id])]


@pytest.fixture
def make_scene(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Scene]:
    return lambda shards: Scene(make_world(backs_off, sleeps, partitions=4, audited=False), monkeypatch, shards)


STEPS = {"forward": (HOUR_MS,), "back": (-HOUR_MS,), "there-and-back": (HOUR_MS, -HOUR_MS), "a-little": (6000, -4000)}


@pytest.mark.pain(39)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_stepped_server_clock_neither_hastens_nor_stalls_what_is_out_of_memory(
    make_scene: Callable[[int], Scene], steps: tuple[int, ...], shards: int
) -> None:
    scene = make_scene(shards)
    world = scene.world
    ids = [f"{kind}{number}" for kind in "bs" for number in range(6)]
    for each in ids:
        world.start(backs_off if each[0] == "b" else sleeps, each)
    world.run_for(20)
    assert [shard.in_memory for shard in world.shards] == [[]] * shards, "all are out of memory"
    for ms in steps:
        scene.step(ms)
        world.run_for(40)
    world.run(lambda: world.ended(*ids), limit=1000)
    # A clock that was set back is followed slowly: due times come up to a tenth late then, and never early.
    most = 1.12 if min(steps) < 0 else 1.0
    for each in ids:
        path, runs, delay = ("patient", 3, DELAY) if each[0] == "b" else ("note", 2, SLEEP + 0.5)
        assert len(scene.begun[each]) == runs, path
        assert all(delay - 0.2 <= gap <= delay * most + 1 for gap in scene.gaps(each)), scene.gaps(each)
    assert all(world.ledger.attempts(each, "patient") == [1, 2, 3] for each in ids[:6])
    assert world.dead_letters() == []


@pytest.mark.pain(39)
@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
def test_across_a_restart_a_step_of_the_clock_never_lengthens_a_delay_out_of_memory(
    make_scene: Callable[[int], Scene], ms: int
) -> None:
    scene = make_scene(1)
    world = scene.world
    for number in range(4):
        world.start(backs_off, f"b{number}")
    world.run_for(20)
    world.crash()
    scene.step(ms)
    restarted = world.clock.monotonic()
    scene.shard()
    world.run(lambda: world.ended(*(f"b{number}" for number in range(4))), limit=1000)
    for number in range(4):
        _, second, third = scene.begun[f"b{number}"]
        assert second <= restarted + DELAY + 1
        assert DELAY <= third - second <= DELAY + 1
        assert world.ledger.attempts(f"b{number}", "patient") == [1, 2, 3]
