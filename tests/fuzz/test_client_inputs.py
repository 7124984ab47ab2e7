"""Whatever a caller gives to a client: it is stored and comes back, or is refused in words; the client stays usable."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
from fuzz.budget import fuzz
from fuzz.desk import Desk
from fuzz.values import DEEP, NESTED, json_values, odd_bytes, texts
from fuzz.worlds import FLOWS, course, fuzz_world, job, listens
from hypothesis import given
from hypothesis import strategies as st

from stepwell.client import Client
from stepwell.core.errors import StepwellError

ANYTHING = (
    *(
        None,
        True,
        0,
        -1,
        2**64,
        10**400,
        1.5,
        math.nan,
        math.inf,
        "",
        "\ud800",
        b"\xff",
        {1: 2},
        {"\ud800": 1},
        {None: 1},
    ),
    *(
        (1, 2),
        {1, 2},
        object(),
        lambda: 1,
        dt.datetime(2020, 1, 1),
        [[[]]],
        {"a": {"b": math.nan}},
        job,
        Exception("x"),
    ),
)
anything = st.sampled_from(ANYTHING) | json_values | texts
ids = st.sampled_from(["victim", "ended", "nobody", "new", "a" * 129, "", "a b", "{sim:0}:x:a"]) | anything
flows = st.sampled_from(["job", "course", "nothing", "job\n", *FLOWS]) | anything
timeouts = st.sampled_from([0, 1, 0.5, -1, math.nan, None, "1", True, 10**400, math.inf])
inputs = st.none() | st.dictionaries(st.sampled_from(["failures", "x"]), anything, max_size=2) | anything


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CALLS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "start": (flows, inputs, st.none() | ids),
    "describe": (ids,),
    "result": (ids, timeouts.filter(lambda each: each is not None)),
    "list": (st.none() | anything, st.none() | anything, st.sampled_from([1, 0, -1, 10**30, "1", None, 1.0, True])),
    "retry": (ids, timeouts.map(lambda each: 1 if each is None else each)),
    "cancel": (ids, st.just(1)),
    "signal": (
        ids,
        st.sampled_from(["word", "a b", "0"]) | anything,
        anything | st.integers(150, 3000).map(deep),
        st.just(1),
    ),
    "dead_letters": (st.sampled_from([1, 0, "x", 10**9]),),
    "dead_letter": (
        anything | st.sampled_from(["0:1-1", "0:x", "ingress:1-1", "9:1-1", "0:9999999999999999999999-1"]),
    ),
    "replay_letter": (anything | st.sampled_from(["0:1-1"]),),
    "drop_letter": (anything | st.sampled_from(["0:1-1"]),),
    "workers": (),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    name = draw(st.sampled_from(sorted(CALLS)))
    return name, tuple(draw(each) for each in CALLS[name])


def ask(client: Client, name: str, arguments: tuple[Any, ...]) -> object:
    """The answer, or the refusal. `TimeoutError` is what a wait may end with."""
    try:
        return getattr(client, name)(*arguments)
    except (StepwellError, TimeoutError) as error:
        return error


@fuzz(40)
@given(st.lists(calls(), min_size=4, max_size=8))
def test_a_client_answers_or_refuses_in_words(asked: list[tuple[str, tuple[Any, ...]]]) -> None:
    with fuzz_world() as world:
        world.shard()
        world.start(job, "ended")
        world.start(course, "victim")
        world.run_for(6)
        client = Desk(world).client()
        for name, arguments in asked:
            answer = ask(client, name, arguments)
            assert str(answer) or not isinstance(answer, Exception)
        client.start(listens, {}, "well")
        assert client.signal("well", "word", [1]).applied
        assert client.result("well", 10) == [[1], 1]


@pytest.mark.pain(18)
@fuzz(40)
@given(
    st.lists(json_values | st.integers(0, 260).filter(lambda levels: levels != 200).map(deep), min_size=1, max_size=6)
)
def test_a_payload_comes_back_as_it_was_sent_or_was_refused(values: list[Any]) -> None:
    with fuzz_world() as world:
        world.shard()
        client = Desk(world).client()
        for number, value in enumerate(values):
            execution_id = client.start("listens", {}, f"e{number}")
            sent = ask(client, "signal", (execution_id, "word", value))
            if isinstance(sent, StepwellError):
                continue
            assert client.result(execution_id, 20) == [value, 1]
            shown = client.describe(execution_id)
            assert "unreadable" not in shown
            assert shown["result"] == [value, 1]


@fuzz(40)
@given(
    st.dictionaries(
        st.sampled_from(["status", "result", "error", "meta", "flow", "rev"]),
        odd_bytes | st.sampled_from([DEEP, NESTED, b"completed", b"error", b"parked", b"cancelled"]),
        min_size=1,
    )
)
def test_a_strangers_row_is_answered_in_words(fields: dict[str, bytes]) -> None:
    with fuzz_world() as world:
        world.client.hset(world.keys.row("odd"), mapping=fields)  # type: ignore[arg-type]
        world.client.zadd(world.keys.by(0, "completed"), {"odd": 5})
        client = Desk(world).client()
        for name, arguments in (
            ("describe", ("odd",)),
            ("result", ("odd", 1)),
            ("list", ()),
            ("cancel", ("odd", 1)),
            ("start", ("job", {}, "odd")),
        ):
            ask(client, name, arguments)


@fuzz(40)
@given(odd_bytes | st.sampled_from([b'{"x":' + DEEP, b'{"applied":true,"status":7}']))
def test_an_outcome_that_can_t_be_read_is_told(outcome: bytes) -> None:
    with fuzz_world() as world:
        world.start(job, "e")
        world.client.hset(world.keys.cmd(0, "id1"), "outcome", outcome)
        ask(Desk(world).client(), "cancel", ("e", 1))
