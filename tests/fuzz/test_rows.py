"""Whatever became of an execution's row: it is parked with a reason or goes on, and nobody else notices."""

from __future__ import annotations

import json

import pytest
from fuzz.budget import fuzz
from fuzz.desk import Desk, in_words
from fuzz.rows import Damage, damage_to
from fuzz.worlds import Neighbours, check_alive, course, doomed, fuzz_world
from hypothesis import event, given, note
from hypothesis import strategies as st
from sim.harness import World

from stepwell.core import row
from stepwell.core.status import PARKED, STATUSES

VICTIM = "victim"
OURS = {"status", "error", "rev", "commit", "updated_at"}
"""What parking writes; all else of a row that can't be read stays as it was."""


LOOKS = (
    *("show victim", "show victim --json", "list", "dead list", "doctor --namespace sim", "result victim --timeout 1"),
)


def is_readable(world: World, fields: dict[str, bytes]) -> bool:
    try:
        row.parse(VICTIM, fields, world.namespace.secret)
    except row.UnreadableRow:
        return False
    return True


def do(world: World, damage: Damage) -> None:
    key = world.keys.row(VICTIM)
    if damage.value is None:
        world.client.hdel(key, damage.field)
    else:
        world.client.hset(key, damage.field, damage.value)


def check_victim(world: World, before: dict[str, bytes], readable: bool) -> None:
    after = world.row(VICTIM)
    status = after.get("status", b"").decode(errors="replace")
    if not readable:
        assert {k: v for k, v in after.items() if k not in OURS} == {k: v for k, v in before.items() if k not in OURS}
        assert after == before or status == PARKED
    if status == PARKED and after.get("error") != before.get("error"):
        error = world.show(VICTIM)["error"]
        assert error["type"] in ("unreadable row", "code diverged", "not deployed here"), error
        event(f"parked: {error['type']}")
    if readable:
        assert status in STATUSES


def look(world: World) -> None:
    desk = Desk(world)
    for line in LOOKS:
        in_words(desk(*line.split()))


@pytest.mark.pain(16)
@fuzz(25)
@given(st.data())
def test_a_damaged_row_is_parked_with_a_reason_or_goes_on(data: st.DataObject) -> None:
    with fuzz_world() as world:
        shard = world.shard()
        world.start(data.draw(st.sampled_from([course, doomed])), VICTIM, **data.draw(st.sampled_from([{}, {}])))
        world.run_for(data.draw(st.integers(0, 12)))
        if data.draw(st.booleans()):
            world.signal(VICTIM, "last", 1)
            world.run_for(1)
        lives_on = not data.draw(st.integers(0, 3))
        if not lives_on:
            world.crash(shard)
        for _ in range(data.draw(st.integers(1, 3))):
            damage = data.draw(damage_to(world.row(VICTIM)))
            note(repr(damage))
            do(world, damage)
        before = world.row(VICTIM)
        readable = is_readable(world, before)
        look(world)
        if not lives_on:
            shard = world.shard()
        neighbours = Neighbours(world)
        neighbours.start()
        commands = data.draw(st.lists(st.sampled_from(["retry", "cancel", "word", "last"]), max_size=3))
        sent = [
            world.send(each, VICTIM) if each in ("retry", "cancel") else world.signal(VICTIM, each, 1)
            for each in commands
        ]
        neighbours.start()
        world.run(lambda: neighbours.ended() and world.inbox() == [], limit=100)
        neighbours.check()
        world.run_for(100)
        check_alive(world, shard)
        letters = json.dumps(world.dead_letters())
        for each in sent:
            assert each in letters or world.outcome(VICTIM, each) is not None
        if not lives_on:
            check_victim(world, before, readable)
        look(world)
