"""Generated flows: what is drawn can be started, comes to an end by itself, and is what the model says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sim.explore import plans
from sim.explore.history import Command
from sim.explore.model import Model
from sim.explore.plans import FLOWS, SIGNALS, Plan
from sim.explore.steps import POLICIES
from sim.harness import World

MakeWorld = Callable[..., World]


def play(world: World, model: Model, plan: Plan, execution_id: str = "e1") -> None:
    """Run it to its end, with a signal of each name whenever it waits for nothing else."""
    model.started(execution_id, plan)
    world.start(plan["flow"], execution_id, plan=plan["plan"])
    for _ in range(40):
        world.run()
        if world.ended(execution_id):
            return
        for name in SIGNALS:
            number = len(model.commands) + 1
            command_id = world.signal(execution_id, name, {"n": number})
            model.sent(Command(command_id, execution_id, "signal", name, number))
    raise AssertionError(f"it never ends: {world.show(execution_id)}")


def nodes_of(nodes: Any) -> Iterator[list[Any]]:
    for each in nodes:
        if isinstance(each, list):
            if each and isinstance(each[0], str):
                yield each
                yield from nodes_of(each[1:])
            else:
                yield from nodes_of(each)


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_alone_does_what_the_model_says(make_world: MakeWorld, seed: int) -> None:
    world, model = make_world(*FLOWS.values()), Model()
    world.shard()
    plan = plans.draw(random.Random(seed))
    play(world, model, plan)
    world.run()
    model.check(world)


def test_all_kinds_of_nodes_steps_and_failures_are_drawn_and_most_plans_are_small() -> None:
    drawn = [plans.draw(random.Random(seed)) for seed in range(600)]
    nodes = [node for plan in drawn for node in nodes_of(plan["plan"])]
    kinds = Counter(node[0] for node in nodes if node[0] in plans._KINDS)
    assert {*kinds} == {*plans._KINDS}
    steps = [node for node in nodes if node[0] == "step"]
    assert {node[1] for node in steps} == {*POLICIES}
    words = {word.partition(":")[0] for node in steps for word in node[3]}
    assert words == {"conn", "after", "fatal", "key", "exit", "odd", "wrong", "big", "hang"}
    sizes = sorted(sum(1 for _ in nodes_of(plan["plan"])) for plan in drawn)
    assert sizes[len(sizes) // 2] < 10 < sizes[-1]
    assert {plan["flow"] for plan in drawn} == {*FLOWS}


def test_a_plan_is_json_and_its_seed_draws_it_again() -> None:
    for seed in range(50):
        plan = plans.draw(random.Random(seed))
        assert json.loads(json.dumps(plan)) == plan == plans.draw(random.Random(seed))


def test_a_plan_can_be_made_smaller_until_nothing_is_left_but_one_node() -> None:
    for seed in range(50):
        plan = plans.draw(random.Random(seed))
        while (smaller := next(plans.smaller(plan), None)) is not None:
            assert len(json.dumps(smaller)) <= len(json.dumps(plan))
            plan = smaller
        assert sum(1 for _ in nodes_of(plan["plan"])) <= 1


def test_every_smaller_plan_can_be_run(make_world: MakeWorld) -> None:
    world, model = make_world(*FLOWS.values()), Model()
    world.shard()
    for number, plan in enumerate([*plans.smaller(plans.draw(random.Random(3)))][:12]):
        play(world, model, plan, f"e{number}")
    world.run()
    model.check(world)
