"""A schedule is data: what kind of world a seed makes, and the beats that it goes through.

Each beat draws what it needs from a stream of its own, made of the seed and the beat's number. So a schedule from which
beats are taken away leaves the others as they were, and a failure can be made shorter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from sim.explore import verbs

BEATS = (20, 32, 48, 64)

# Which act comes how often.
USER_ACTS: Final = verbs.ACTS
CALM_ACTS: Final = {"nothing": 6, "rest": 5, "pass": 6, "jump": 8}
SHARING_ACTS: Final = {"join": 5, "leave": 3}
FAULTS: Final = {
    "crash": 3,
    "machine dies": 2,
    "dies in a turn": 3,
    "dies at a commit": 4,
    "freeze": 3,
    "thaw": 3,
    "zombie": 3,
    "slow": 4,
    "slow part": 3,
    "cut": 4,
    "lost reply": 6,
    "torn": 3,
    "repeated": 3,
    "down": 2,
    "refused": 2,
    "forgotten scripts": 1,
    "lost lease": 1,
    "out of memory": 4,
    "broken actor": 2,
    "late result": 4,
    "clock step": 1,
    "foreign": 1,
}
LOSSES: Final = {"lost second": 3, "failover": 8}
BUGS: Final = ("part fails",)


@dataclass(frozen=True)
class Setting:
    """The world of a schedule.

    `sharing`: several shards come and go, and leases are renewed; else there is one at a time. `gentle`: nothing
    breaks. `loses`: the server may forget. `drifts`: each shard's clock has its own speed and origin. `parents`:
    somebody reads the black boxes of the dead.
    """

    partitions: int
    sharing: bool
    gentle: bool
    loses: bool
    drifts: bool
    parents: bool
    batch: int
    executions: int


@dataclass(frozen=True)
class Beat:
    """One act, and how many turns pass after it. `number` names its stream."""

    number: int
    act: str
    turns: int


@dataclass(frozen=True)
class Schedule:
    """All that a run depends on. `absent`: executions that nobody starts (a shorter schedule leaves some out)."""

    seed: int
    setting: Setting
    beats: tuple[Beat, ...]
    absent: frozenset[int] = frozenset()

    def only(self, beats: tuple[Beat, ...]) -> Schedule:
        """The same with some of its beats."""
        return replace(self, beats=beats)

    def stream(self, number: int) -> str:
        """The seed of a beat's stream."""
        return f"{self.seed}/{number}"


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(f"schedule {seed}")
    sharing = chance.random() < 0.6
    gentle = chance.random() < 0.1
    setting = Setting(
        partitions=chance.choice([2, 3, 4]) if sharing else chance.choice([1, 2]),
        sharing=sharing,
        gentle=gentle,
        loses=not gentle and chance.random() < 0.3,
        drifts=chance.random() < 0.3,
        parents=chance.random() < 0.5,
        batch=chance.choice([1, 2, 3, 256]),
        executions=chance.choice([1, 2, 3, 5, 7]),
    )
    weights = _weights(chance, setting)
    names = list(weights)
    drawn = chance.choices(names, list(weights.values()), k=chance.choice(BEATS))
    beats = [Beat(0, "start", chance.choice([0, 4, 16]))]
    beats += [Beat(number, act, chance.choice([0, 1, 2, 4, 8, 16])) for number, act in enumerate(drawn, 1)]
    return Schedule(seed, setting, tuple(beats if gentle else _with_bugs(seed, beats)))


def _with_bugs(seed: int, beats: list[Beat]) -> list[Beat]:
    """In every fourth schedule parts of shards fail. What is drawn for that leaves all other beats as they would be."""
    chance = random.Random(f"bugs {seed}")
    if chance.random() < 0.75:
        return beats
    for number in range(len(beats), len(beats) + chance.choice([1, 2, 3, 4])):
        beat = Beat(number, chance.choice(BUGS), chance.choice([0, 1, 2, 4, 8, 16]))
        beats.insert(chance.randint(1, len(beats)), beat)
    return beats


def _weights(chance: random.Random, setting: Setting) -> dict[str, float]:
    """Each schedule knows only some faults: with all of them at once, some states would never be reached."""
    weights: dict[str, float] = {**USER_ACTS, **CALM_ACTS}
    if setting.sharing:
        weights.update(SHARING_ACTS)
    faults = dict(FAULTS)
    if setting.loses:
        faults.update(LOSSES)
    for name, weight in {} if setting.gentle else faults.items():
        if chance.random() < 0.6:
            weights[name] = weight
    if setting.loses:
        weights["mark"] = 6
    return weights
