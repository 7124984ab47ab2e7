"""Whatever other languages XADD into the ingress: each entry has an effect or a reason, and no neighbour notices."""

from __future__ import annotations

import json

import pytest
from fuzz.budget import fuzz
from fuzz.values import DEEP, NESTED, ids, json_bytes, odd_bytes
from fuzz.worlds import check_alive, course, fuzz_world, job
from hypothesis import example, given
from hypothesis import strategies as st
from sim.harness import World

from stepwell.core.formats import entry_format
from stepwell.store.ingress import GROUP

Fields = dict[bytes, bytes]
NAMES = (b"type", b"flow", b"id", b"input", b"execution", b"name", b"payload", b"v")


@st.composite
def almost_right(draw: st.DrawFn) -> Fields:
    """A start or command as the docs show it, with up to three things wrong."""
    fields: Fields = {
        b"type": draw(st.sampled_from([b"start", b"signal", b"cancel", b"retry", b"begin"])),
        b"flow": draw(st.sampled_from([b"job", b"course", b"listens", b"next_week"])),
        b"id": draw(ids).encode(),
        b"input": draw(st.sampled_from([b"{}", b'{"failures":1}', b'{"failures":-1e999}', NESTED]) | json_bytes),
        b"execution": draw(ids).encode(),
        b"name": draw(st.sampled_from([b"word", b"last", b"0", b"a b"])),
        b"payload": draw(json_bytes),
        b"v": draw(st.sampled_from([b"1", b"2", b"999", b"1000", b"-1"])),
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
    return world.client.xadd(world.keys.ingress, dict(fields)).decode()  # type: ignore[arg-type]


def is_newer(fields: Fields) -> bool:
    return (entry_format({name.decode(errors="replace"): value for name, value in fields.items()}) or 1) > 1


def good(world: World, number: int) -> None:
    """A start and a signal for it, as other languages write them."""
    add(world, {b"type": b"start", b"flow": b"job", b"id": f"good{number}".encode()})
    add(world, {b"type": b"start", b"flow": b"listens", b"id": f"ear{number}".encode(), b"input": b"{}"})
    signal = {b"type": b"signal", b"execution": f"ear{number}".encode(), b"name": b"word"}
    add(world, {**signal, b"payload": json.dumps(number).encode()})


def left_over(world: World) -> tuple[int, int]:
    pending = world.client.xpending(world.keys.ingress, GROUP)["pending"]
    return world.client.xlen(world.keys.ingress), pending


@pytest.mark.pain(31)
@fuzz(35)
@given(st.lists(entries, min_size=1, max_size=12), st.sampled_from([b"", b'{"x":' + DEEP, b"\xff", b'{"flow":7}']))
@example([{b"type": b"start", b"flow": b"job", b"id": b"nobody", b"input": b"{}"}], b'{"x":' + DEEP)
def test_every_entry_has_an_effect_or_a_reason_and_neighbours_go_on(drawn: list[Fields], meta: bytes) -> None:
    """`nobody` is an execution whose row is a stranger's: only `meta`, which says so much."""
    with fuzz_world() as world:
        shard = world.shard(ingress=True)
        world.start(job, "ended")
        world.start(course, "victim")
        world.run(lambda: world.ended("ended"))
        world.client.hset(world.keys.row("nobody"), mapping={"status": "queued", "meta": meta})
        ids = []
        for place, fields in enumerate(drawn):
            if place % 4 == 0:
                good(world, place)
            ids.append(add(world, fields))
        good(world, len(drawn))
        newer = sum(map(is_newer, drawn))
        numbers = [*range(0, len(drawn), 4), len(drawn)]
        names = [f"{kind}{n}" for n in numbers for kind in ("good", "ear")]
        world.run(lambda: world.ended(*names) and left_over(world)[0] == newer, limit=200)
        for number in numbers:
            assert world.show(f"good{number}")["result"] == 3
            assert world.show(f"ear{number}")["result"] == [number, 1]
        check_alive(world, shard)
        letters = {letter["entry"]: letter["reason"] for letter in world.dead_letters()}
        assert all(letters.values())
        for entry_id, fields in zip(ids, drawn, strict=True):
            if not is_newer(fields) and entry_id not in letters:
                assert fields[b"type"] in (b"start", b"signal", b"cancel", b"retry"), fields
