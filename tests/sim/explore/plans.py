"""Generated flows: a plan is plain JSON, drawn by chance, and the flows of `FLOWS` do what it says.

A plan is a list of nodes, each a list that begins with its kind:

    ["step", name, label, script, seconds]   a step of steps.STEPS
    ["sleep", seconds]
    ["wait", signal, timeout or None, caught]  caught: a timeout does not leave the node
    ["gather", [branch, ...]]                a branch is a list of nodes
    ["try", nodes, compensation]             except StepFailed
    ["rescue", nodes, compensation]          except Exception
    ["finally", nodes, steps]
    ["guard", nodes, cleanup, swallows]      except Cancelled; it is raised again unless it `swallows`
    ["loop", times, nodes]                   the same names again
    ["if", nodes, nodes]                     by what the branch has got until now
    ["order", nodes, nodes]                  by the order in which the last gather's branches got things
    ["raise", label] ["foreign"]             the flow's own faults
    ["forget", label] ["odd"]                at its end: an operation never awaited; a result that can't be stored

What a flow saw, and of which types, is its result. `walk.py` says what it must have seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from sim.explore.steps import POLICIES, PRIME, STEPS

from stepwell import Cancelled, Flow, SignalTimeout, StepFailed, flow, gather, sleep, wait_for

Node = list[Any]
Nodes = list[Node]
Plan = dict[str, Any]  # {"flow": a name in FLOWS, "plan": nodes}; "misfit": True where its input is none of that flow
SIGNALS = ("red", "blue", "green")


class FlowFault(Exception):
    """The flow's own code raises."""


class Trip:
    """What all branches of one execution share: the order in which they got things, and how it is to end."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.odd = False


class Way:
    """What one branch has seen."""

    def __init__(self, trip: Trip, state: int = 0, logs: tuple[list[str], ...] = ()) -> None:
        self.trip = trip
        self.state = state
        self.seen: list[Any] = []
        self.latest: list[str] = []  # the order in which the branches of the last gather got things
        self._logs = logs  # those of the gathers around it

    @property
    def given(self) -> int:
        """What the next step gets: it depends on all that was delivered before.

        Only on what is settled in its own branch: a retry by hand may undo what other branches have got.
        """
        return self.state * 7 % PRIME

    def note(self, label: str, value: int, seen: object) -> None:
        """Something was delivered."""
        self.state = fold(self.state, value)
        for log in (self.trip.order, *self._logs):
            log.append(label)
        self.seen.append(seen)

    def branches(self, number: int) -> list[Way]:
        """So many ways from here, side by side."""
        log: list[str] = []
        return [Way(self.trip, self.state, (*self._logs, log)) for _ in range(number)]

    def join(self, branches: list[Way]) -> None:
        """All have ended well."""
        for each in branches:
            self.state = fold(self.state, each.state)
            self.latest = each._logs[-1]
        self.seen.append(["gather", [each.seen for each in branches]])


def fold(state: int, value: int) -> int:
    """A state that depends on all values and their order."""
    return (state * 31 + value + 1) % PRIME


def parity(order: list[str]) -> int:
    """0 or 1, by the order in which things were delivered."""
    total = 0
    for label in order:
        total = (total * 3 + sum(label.encode())) % 997
    return total % 2


async def follow(nodes: Nodes, way: Way) -> None:
    """Do what a list of nodes says."""
    for kind, *given in nodes:
        await _DO[kind](way, *given)


async def _step(way: Way, name: str, label: str, script: list[str], seconds: float) -> None:
    asked = way.given
    given = [asked]
    result: Any = await STEPS[name](label, script, seconds, given)
    assert given == [asked], "a body has changed what the flow holds"
    way.note(label, number_in(result), ["step", *shape_of(result)])


def number_in(result: Any) -> int:
    """The number that a step's result stands for."""
    if isinstance(result, dict):
        return int(result["v"])
    if isinstance(result, bytes):
        return int.from_bytes(result, "big")
    if isinstance(result, set):
        return sum(result)
    return int(result.v) if hasattr(result, "v") else int(result.timestamp())


def shape_of(result: Any) -> list[object]:
    """Its type, and those of what is in it: the same at the first delivery and at each replay."""
    parts = sorted(vars(result).items()) if hasattr(result, "v") else ()
    return [type(result).__name__, number_in(result), *(f"{name}: {type(part).__name__}" for name, part in parts)]


async def _sleep(way: Way, seconds: float) -> None:
    nothing: Any = await sleep(seconds)
    way.note("sleep", 1, ["sleep", type(nothing).__name__])


async def _wait(way: Way, name: str, timeout: float | None, caught: bool) -> None:
    try:
        payload = await wait_for(name, timeout)
    except SignalTimeout as late:
        if not caught:
            raise
        way.note("late", 2, ["late", late.name])
        return
    way.note(name, payload["n"], ["signal", name, payload["n"], type(payload).__name__])


async def _gather(way: Way, branches: list[Nodes]) -> None:
    ways = way.branches(len(branches))
    await gather(*[follow(nodes, each) for nodes, each in zip(branches, ways, strict=True)])
    way.join(ways)


async def _try(way: Way, nodes: Nodes, compensation: Nodes) -> None:
    try:
        await follow(nodes, way)
    except StepFailed as failed:
        way.note("failed", failed.attempts, ["failed", failed.type, failed.attempts, failed.path])
        await follow(compensation, way)


async def _rescue(way: Way, nodes: Nodes, compensation: Nodes) -> None:
    try:
        await follow(nodes, way)
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
        way.note("rescued", 3, ["rescued", type(error).__name__])
        await follow(compensation, way)


async def _finally(way: Way, nodes: Nodes, steps: Nodes) -> None:
    try:
        await follow(nodes, way)
    finally:
        await follow(steps, way)


async def _guard(way: Way, nodes: Nodes, cleanup: Nodes, swallows: bool) -> None:
    try:
        await follow(nodes, way)
    except Cancelled:
        way.note("cancelled", 4, ["cancelled"])
        await follow(cleanup, way)
        if not swallows:
            raise


async def _loop(way: Way, times: int, nodes: Nodes) -> None:
    for _ in range(times):
        await follow(nodes, way)


async def _if(way: Way, odd: Nodes, even: Nodes) -> None:
    await follow(odd if way.state % 2 else even, way)


async def _order(way: Way, odd: Nodes, even: Nodes) -> None:
    await follow(odd if parity(way.latest) else even, way)


async def _raise(way: Way, label: str) -> None:
    raise FlowFault(f"{label} after {len(way.trip.order)}")


async def _foreign(_way: Way) -> None:
    await asyncio.sleep(0)


async def _forget(way: Way, label: str) -> None:
    STEPS["quick"](label, [], 0, [0])


async def _odd(way: Way) -> None:
    way.trip.odd = True


_DO: dict[str, Callable[..., Awaitable[None]]] = {
    "step": _step,
    "sleep": _sleep,
    "wait": _wait,
    "gather": _gather,
    "try": _try,
    "rescue": _rescue,
    "finally": _finally,
    "guard": _guard,
    "loop": _loop,
    "if": _if,
    "order": _order,
    "raise": _raise,
    "foreign": _foreign,
    "forget": _forget,
    "odd": _odd,
}


async def _travel(plan: Nodes) -> object:
    trip = Trip()
    way = Way(trip)
    await follow(plan, way)
    return object() if trip.odd else {"state": way.state, "seen": way.seen, "order": trip.order}


@flow
async def free(plan: list[list[Any]]) -> object:
    """No limit of its own."""
    return await _travel(plan)


@flow(max_running=2)
async def narrow(plan: list[list[Any]]) -> object:
    """Two at once in a shard."""
    return await _travel(plan)


@flow(max_running=1)
async def narrowest(plan: list[list[Any]]) -> object:
    """One at once in a shard."""
    return await _travel(plan)


ELSEWHERE = "elsewhere"  # a flow that no worker here has


def input_of(plan: Plan) -> dict[str, Any]:
    """What an execution of it is started with."""
    return {"misfit": plan["plan"]} if plan.get("misfit") else {"plan": plan["plan"]}


FLOWS: dict[str, Flow[..., Any]] = {each.name: each for each in (free, narrow, narrowest)}

# Drawing.

_FAILING = [*["conn"] * 12, "after:4", "after:200", "fatal", "key", "exit", "odd", "wrong", "big"]
_KINDS = {
    "step": 60,
    "sleep": 10,
    "wait": 10,
    "gather": 14,
    "try": 8,
    "rescue": 4,
    "finally": 5,
    "guard": 4,
    "loop": 4,
    "if": 3,
    "order": 4,
    "raise": 1.5,
    "foreign": 0.4,
    "forget": 0.4,
    "odd": 0.4,
}
_LEAVES = {kind: weight for kind, weight in _KINDS.items() if kind in ("step", "sleep", "wait", "raise")}
_NAMES = (*["steady"] * 4, *["quick"] * 2, *(name for name in POLICIES if name not in ("steady", "quick")))


class _Drawing:
    """`left`: how many nodes may still be drawn."""

    def __init__(self, chance: random.Random, left: int) -> None:
        self.chance = chance
        self.left = left
        self.number = 0

    def nodes(self, depth: int, least: int = 1, most: int = 4) -> Nodes:
        return [self.node(depth) for _ in range(self.chance.randint(least, most)) if self.left > 0 or least]

    def node(self, depth: int) -> Node:
        self.left -= 1
        kinds = _KINDS if depth < 3 and self.left > 1 else _LEAVES
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        drawn: Node = getattr(self, f"_{kind}")(depth + 1)
        return [kind, *drawn]

    def label(self) -> str:
        self.number += 1
        return f"n{self.number}"

    def steps(self) -> Nodes:
        return [["step", *self._step(0)] for _ in range(self.chance.randint(1, 2))]

    def _step(self, _depth: int) -> Node:
        chance = self.chance
        name = chance.choice(_NAMES)
        policy = POLICIES[name]
        script: list[str] = []
        if chance.random() < 0.4:
            failing = [*_FAILING, *["hang"] * 4] if policy.timeout else _FAILING
            if name == "patient":  # its own delays are longer than some of what is asked for, and shorter than others
                failing = [*_FAILING, *["after:4"] * 6, *["after:200"] * 3]
            most = policy.most + 1 if chance.random() < 0.25 else policy.most - 1
            script = [chance.choice(failing) for _ in range(chance.randint(min(1, most), most))]
            if (
                len(script) > 1 and name != "patient" and chance.random() < 0.7
            ):  # most scripts are of failures that are tried again
                script = ["conn"] * len(script)
        seconds = chance.choice([0, 0, 0, 0.25, 1, 1, 3, 20] if policy.timeout is None else [0, 0.5, 1.5])
        return [name, self.label(), script, seconds if policy.waits else 0]

    def _sleep(self, _depth: int) -> Node:
        return [self.chance.choice([0, 0.01, 1, 7, 45, 100])]

    def _wait(self, _depth: int) -> Node:
        timeout = self.chance.choice([None, None, 0, 5, 60])
        return [self.chance.choice(SIGNALS), timeout, self.chance.random() < 0.7]

    def _gather(self, depth: int) -> Node:
        if self.chance.random() < 0.25:
            return [self._doomed()]
        if depth == 1 and self.chance.random() < 0.04:  # enough to be sorted wrongly by their paths as text
            return [[[["step", "quick", self.label(), [], 0]] for _ in range(12)]]
        return [[self.nodes(depth, 0, 2) for _ in range(self.chance.choice([0, 1, 2, 2, 2, 3, 3]))]]

    def _doomed(self) -> list[Nodes]:
        """Branches of which one fails for good while others are at work, or in the middle of their budgets."""
        chance = self.chance
        name = chance.choice(["once", "quick", "eager", "steady"])
        fatal = chance.choice([["fatal"], ["conn"] * POLICIES[name].most])
        doomed: Nodes = [["step", name, self.label(), fatal, 0]]
        if chance.random() < 0.6:
            doomed.insert(0, ["sleep", chance.choice([1, 2, 4])])
        branches = [doomed]
        for _ in range(chance.randint(1, 2)):
            name = chance.choice(["steady", "flat", "patient", "parcel"])
            most = POLICIES[name].most
            script = ["conn"] * chance.choice([0, 0, most - 1, most, most + 1])
            seconds = chance.choice([0.25, 3, 3, 20]) if POLICIES[name].waits else 0
            branches.append([["step", name, self.label(), script, seconds]])
        chance.shuffle(branches)
        return branches

    def _try(self, depth: int) -> Node:
        return [self.nodes(depth, 1, 2), self.nodes(depth, 0, 2)]

    _rescue = _try

    def _finally(self, depth: int) -> Node:
        return [self.nodes(depth, 1, 2), self.steps()]

    def _guard(self, depth: int) -> Node:
        return [self.nodes(depth, 1, 2), self.steps(), self.chance.random() < 0.3]

    def _loop(self, depth: int) -> Node:
        if depth == 1 and self.chance.random() < 0.1:
            return [12, [["step", "quick", self.label(), [], 0]]]
        return [self.chance.choice([0, 2, 3]), self.nodes(depth, 1, 2)]

    def _if(self, depth: int) -> Node:
        return [self.nodes(depth, 0, 2), self.nodes(depth, 0, 2)]

    _order = _if

    def _raise(self, _depth: int) -> Node:
        return [self.label()]

    _forget = _raise

    def _foreign(self, _depth: int) -> Node:
        return []

    _odd = _foreign


def draw(chance: random.Random) -> Plan:
    """A plan; most are small."""
    size = chance.choice([2, 3, 4, 4, 5, 6, 8, 16])
    name = chance.choice(["free"] * 4 + ["narrow", "narrowest"])
    drawing = _Drawing(chance, size)
    nodes = drawing.nodes(0, 1, 5 if size < 16 else 8)
    return {"flow": name, "plan": nodes}


# Shrinking.


def smaller(plan: Plan) -> Iterator[Plan]:
    """Plans that are a little simpler, the simplest first."""
    for nodes in _less(plan["plan"]):
        yield {**plan, "plan": nodes}
    if plan["flow"] != "free":
        yield {**plan, "flow": "free"}


def _less(nodes: Nodes) -> Iterator[Nodes]:
    if len(nodes) > 1:
        yield nodes[: len(nodes) // 2]
        yield nodes[len(nodes) // 2 :]
    for place, node in enumerate(nodes):
        before, after = nodes[:place], nodes[place + 1 :]
        yield before + after
        for inner in _inner(node):
            yield before + inner + after
        for simpler in _simpler(node):
            yield [*before, simpler, *after]


def _inner(node: Node) -> Iterator[Nodes]:
    """The nodes inside, without what is around them."""
    kind, *given = node
    for each in given[0] if kind == "gather" else given:
        if isinstance(each, list) and each and isinstance(each[0], list):
            yield each


def _simpler(node: Node) -> Iterator[Node]:
    kind, *given = node
    if kind == "step":
        name, label, script, seconds = given
        if seconds:
            yield [kind, name, label, script, 0]
        for place in range(len(script)):
            yield [kind, name, label, script[:place] + script[place + 1 :], seconds]
    elif kind == "gather":
        for nodes in _less_branches(given[0]):
            yield [kind, nodes]
    else:
        for place, each in enumerate(given):
            if isinstance(each, list):
                for nodes in _less(each):
                    yield [kind, *given[:place], nodes, *given[place + 1 :]]


def _less_branches(branches: list[Nodes]) -> Iterator[list[Nodes]]:
    for place, branch in enumerate(branches):
        yield branches[:place] + branches[place + 1 :]
        for nodes in _less(branch):
            yield [*branches[:place], nodes, *branches[place + 1 :]]
