"""Verbs: what is drawn is done, told to the model, and leads to every kind of outcome that a command can have."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

import pytest
from sim.explore.model import Model
from sim.explore.plans import FLOWS
from sim.explore.verbs import ACTS, Verbs
from sim.harness import World

from stepwell.core.limits import Limits
from stepwell.store.link import LinkDown

MakeWorld = Callable[..., World]


def busy_day(make_world: MakeWorld, seed: int, acts: int = 50) -> tuple[World, Verbs, list[str]]:
    """A shard, and users who do this and that; in the end all has ended."""
    logging.disable(logging.CRITICAL)
    try:
        world = make_world(*FLOWS.values(), audited=False)
        world.shard(ingress=True, limits=Limits(running=3, passivate_after=10))
        verbs = Verbs(world, Model(), seed, ingress=True)
        chance = random.Random(seed)
        said = []
        for name in chance.choices(list(ACTS), list(ACTS.values()), k=acts):
            said.append(f"{name}: {verbs.do(name, chance)}")
            world.run_for(chance.choice([0, 0, 0.01, 1, 7, 50]))
        for _ in range(40):
            world.run_for(6)
            if not verbs.mend(chance) and not world.inbox() and not verbs.unread():
                break
        world.run_for(130)  # what waits in the ingress for a start that never comes
        verbs.model.check(world)
    finally:
        logging.disable(logging.NOTSET)
    return world, verbs, said


def test_a_seed_does_the_same_again(make_world: MakeWorld) -> None:
    one, two = (busy_day(make_world, 5, 30) for _ in range(2))
    assert one[2] == two[2]
    assert one[0].events == two[0].events


def test_the_model_agrees_and_commands_come_to_every_kind_of_outcome(make_world: MakeWorld) -> None:
    outcomes: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    for seed in range(8):
        world, verbs, said = busy_day(make_world, seed)
        for command in verbs.model.commands.values():
            made = command.applications
            word = "buried" if not made else "accepted" if made[0].applied else "refused"
            outcomes[f"{command.kind} {word}"] += 1
        outcomes["repeats"] += sum(1 for each in said if "once more" in each)
        for name, plan in verbs.model.plans.items():
            starts["misfit" if plan.get("misfit") else plan["flow"]] += 1
            outcomes[world.status(name)] += 1
    kinds = ("signal", "cancel", "retry")
    wanted = {f"{kind} {word}" for kind in kinds for word in ("accepted", "refused")}
    assert {*outcomes} >= wanted | {
        "signal buried",
        "nonsense buried",
        "start buried",
        "repeats",
        "completed",
        "error",
        "cancelled",
    }
    assert {*starts} >= {*FLOWS, "misfit", "elsewhere"}


def test_what_never_came_to_the_server_needs_no_outcome(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(*FLOWS.values())
    world.shard()
    verbs = Verbs(world, Model(), 1)

    def down(*_: object, **__: object) -> str:
        raise LinkDown("away")

    with monkeypatch.context() as patched:
        patched.setattr(world, "send", down)
        patched.setattr(world, "start", down)
        verbs.start(random.Random(1))
        verbs.cancel(random.Random(1))
    assert [command.sure for command in verbs.model.commands.values()] == [False]
    world.run()
    verbs.model.check(world)
