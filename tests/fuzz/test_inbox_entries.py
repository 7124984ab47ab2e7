"""Whatever lies in an inbox: the shard lives, each entry has an effect or a reason, and no neighbour notices."""

from __future__ import annotations

import pytest
from fuzz.budget import fuzz
from fuzz.values import DEEP, ids, json_bytes, odd_bytes
from fuzz.worlds import Neighbours, check_alive, course, fuzz_world, job
from hypothesis import event, example, given
from hypothesis import strategies as st
from sim.harness import World

from stepwell.core.formats import entry_format
from stepwell.core.records import decode_outcome

Fields = dict[bytes, bytes]
NAMES = (b"type", b"execution", b"command", b"data", b"at", b"v", b"flow", b"payload")
DEEP_SIGNAL = b'{"name":"word","payload":' + DEEP
KINDS = ("start", "signal", "cancel", "retry", "pause", "resume", "reset", "START", "")


@st.composite
def almost_right(draw: st.DrawFn) -> Fields:
    """A command or doorbell as clients send them, with up to three things wrong."""
    fields: Fields = {
        b"type": draw(st.sampled_from(KINDS)).encode(),
        b"execution": draw(ids).encode(),
        b"command": draw(st.sampled_from(["c1", "c2", "c3"])).encode(),
        b"data": draw(
            st.sampled_from([b"{}", b'{"name":"word","payload":7}', b'{"name":"last"}', DEEP_SIGNAL]) | json_bytes
        ),
        b"at": b"1",
        b"v": draw(st.sampled_from([b"1", b"2", b"999", b"1000", b"01", b"-1", b"\xb2", b"1.0"])),
    }
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
        wrong = draw(st.none() | odd_bytes)
        if wrong is None:
            fields.pop(name, None)
        else:
            fields[name] = wrong
    return fields or {b"a": b"b"}


entries = almost_right() | st.dictionaries(st.sampled_from(NAMES) | st.binary(max_size=5), odd_bytes, min_size=1)


def add(world: World, fields: Fields) -> str:
    """XADD, with duplicated field names where the same name stands twice."""
    return world.client.xadd(world.keys.inbox(0), dict(fields)).decode()  # type: ignore[arg-type]


def has_effect_or_reason(world: World, fields: Fields, letters: dict[str, str], entry_id: str) -> bool:
    """A dead letter that says why, an answer to its command; a doorbell needs neither where there is an execution."""
    if entry_id in letters:
        return letters[entry_id] != ""
    command = fields.get(b"command", b"").decode(errors="replace")
    outcome = world.client.hget(world.keys.cmd(0, command), "outcome")
    if outcome is not None:
        decode_outcome(outcome)
        return True
    execution = fields.get(b"execution", b"").decode(errors="replace")
    return fields.get(b"type") == b"start" and execution in ("victim", "ended")


@pytest.mark.pain(31)
@fuzz(40)
@given(st.lists(st.tuples(entries, st.integers(1, 2)), min_size=1, max_size=12))
@example([({b"type": b"signal", b"execution": b"victim", b"command": b"c1", b"data": DEEP_SIGNAL}, 1)])
def test_every_entry_has_an_effect_or_a_reason_and_neighbours_go_on(drawn: list[tuple[Fields, int]]) -> None:
    with fuzz_world() as world:
        shard = world.shard()
        world.start(job, "ended")
        world.run(lambda: world.ended("ended"))
        world.start(course, "victim")
        neighbours = Neighbours(world)
        added: dict[str, Fields] = {}
        for place, (fields, times) in enumerate(drawn):
            if place % 4 == 0:
                neighbours.start()
            for _ in range(times):
                added[add(world, fields)] = fields
            if place == len(drawn) // 2:
                world.run_for(2)
        neighbours.start()
        newer = sum(
            (entry_format({k.decode(errors="replace"): v for k, v in f.items()}) or 1) > 1 for f in added.values()
        )
        world.run(lambda: neighbours.ended() and len(world.inbox()) == newer, limit=100)
        neighbours.check()
        check_alive(world, shard)
        letters = {letter["entry"]: letter["reason"] for letter in world.dead_letters()}
        left = {entry_id.decode() for entry_id, _ in world.client.xrange(world.keys.inbox(0))}
        for entry_id, fields in added.items():
            if entry_id not in left:
                assert has_effect_or_reason(world, fields, letters, entry_id), fields
        event(f"letters: {min(3, len(letters))}")
