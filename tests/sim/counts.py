"""What a shard keeps count of equals the truth whenever a world is at rest, and nothing is left when all has ended."""

from __future__ import annotations

from collections import Counter

from sim.harness import SimShard, World

from stepwell.actors.dispatcher import Dispatcher
from stepwell.actors.execution import ExecutionActor
from stepwell.actors.healing import Healer
from stepwell.core.status import QUEUED
from stepwell.core.transitions import is_busy


def check_all_is_over(world: World) -> None:
    """Everything has ended: nobody waits for anything, and nothing is kept of it."""
    for shard in world.shards:
        of = dispatcher(shard)
        admission = of._admission
        assert not of._routes
        assert not admission.waiting
        assert (admission.running, admission._by_flow, admission._returning) == (0, {}, {})
        assert not admission._start_ids
        assert not admission._entries
        assert (of._loading, of._stale_rows) == (0, {})
        assert len(of._residents) == 0
        assert not of._residents._told
        assert not of._departures
        assert shard.holdings.unrecovered() == []
        assert shard.mirror.idle
        assert not shard.mirror._fenced
        assert shard.runner.running == 0
        assert shard.runner._attempts._by_path == {}, list(shard.runner._attempts._by_path)
        assert all(gate.used == 0 for gate in shard.runner._attempts._gates._bodies)
        healer = singleton(shard, ":healer")
        assert isinstance(healer, Healer)
        assert not healer._to_ask
        assert not healer._asked
        assert not healer._lists_to_come
        assert shard.in_memory == []


def dispatcher(shard: SimShard) -> Dispatcher:
    actor = singleton(shard, ":dispatcher")
    assert isinstance(actor, Dispatcher)
    return actor


def singleton(shard: SimShard, name: str) -> object:
    return next(cell.actor for cell in shard.scheduler._living if cell.name == name)


def check_shard(shard: SimShard) -> None:
    """The same of one shard."""
    of = dispatcher(shard)
    admission, routes = of._admission, of._routes
    busy = Counter(route.flow for route in routes.values() if route.busy)
    assert admission.running == busy.total(), f"{shard.name} counts {admission.running} as running: {busy}"
    assert admission._by_flow == busy, f"{shard.name} counts {admission._by_flow} as running: {busy}"
    in_memory = Counter(route.partition for route in routes.values() if route.partition in of._departures)
    assert +of._departures._left == in_memory, f"{shard.name}: {of._departures._left} leave, in truth {in_memory}"
    assert {*routes} >= {*of._residents._since, *of._residents._told}
    waiting = Counter(item[1] for heap in (admission._overdue, admission._resting) for item in heap)
    assert {*waiting} == {*admission._returning}
    assert set(waiting.values()) <= {1}
    assert admission._return_to == Counter(admission._returning.values())
    assert admission._start_ids <= {each for entries in admission._entries.values() for each in entries.values()}
    if not shard.mirror.idle or shard.mirror._fenced or shard.scheduler._runnable:
        return
    loads = [route for route in routes.values() if route.waits_for == "row"]
    assert of._loading == len(loads) + of._stale_rows.total(), f"{shard.name}: {of._loading} loads, not {len(loads)}"
    actors = {cell.name: cell.actor for cell in shard.scheduler._living if isinstance(cell.actor, ExecutionActor)}
    assert {*actors} == {name for name, route in routes.items() if route.ref is not None}
    for name, actor in actors.items():
        machine, route = actor._machine, routes[name]
        if machine is None or actor._in_flight is not None or route.begins or machine.checkpoint.status == QUEUED:
            continue
        truth = is_busy(machine.checkpoint, shard.clock.now_ms())
        if truth == is_busy(machine.checkpoint, shard.clock.now_ms() - 1000):  # falls due at this instant
            assert route.busy == truth, f"{shard.name}: {name} counts as {route.busy}, is {machine.checkpoint.status}"
