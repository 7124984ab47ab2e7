"""Traces and ids of spans: what is read, and what they derive from."""

from __future__ import annotations

import itertools

import pytest

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.records import Meta, TerminalError
from stepwell.core.status import RUNNING
from stepwell.core.token import step_token, token_seed
from stepwell.core.tracing import (
    SpanRef,
    attempt_span,
    execution_span,
    moment_span,
    read_traceparent,
    step_span,
    trace_of,
)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SEED = token_seed("order-7", 0, bytes(32))
TOKEN = step_token(SEED, "charge")


def checkpoint(trace: str = "", state: str = "", failures: tuple[TerminalError, ...] = ()) -> Checkpoint:
    meta = Meta("checkout", 1, "hash", trace=trace, trace_state=state)
    return Checkpoint("order-7", meta, b"{}", SEED, RUNNING, 1, failures=failures)


def test_a_traceparent_is_read_and_written() -> None:
    span = read_traceparent(PARENT)
    assert span == SpanRef(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)
    assert span.header == PARENT


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    span = read_traceparent("cc" + PARENT[2:] + "-what-comes-later")
    assert span is not None
    assert span.header == PARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        PARENT[:-1],
        PARENT + "-more",
        PARENT + "\n",
        "ff" + PARENT[2:],
        PARENT.upper(),
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
        PARENT.replace("-", "_"),
        "\u0660\u0660" + PARENT[2:],
        "x" * 100_000,
    ],
)
def test_what_is_no_traceparent_is_nobodys(text: str) -> None:
    assert read_traceparent(text) is None
    assert trace_of(checkpoint(text, "vendor=1")) == trace_of(checkpoint())


def test_the_trace_is_the_callers_or_one_that_derives_from_the_execution() -> None:
    called = trace_of(checkpoint(PARENT, "vendor=1"))
    assert (called.trace_id, called.caller, called.state) == (
        0x0AF7651916CD43DD8448EB211C80319C,
        read_traceparent(PARENT),
        "vendor=1",
    )
    own = trace_of(checkpoint())
    assert own == trace_of(checkpoint())
    assert own.caller is None
    assert 0 < own.trace_id < 2**128


def test_each_retry_by_hand_begins_an_episode_also_when_the_first_failures_are_forgotten() -> None:
    older = (TerminalError("E", "m", 5_000), TerminalError("E", "m", 5_000))  # of a version that did not count them
    newer = TerminalError("E", "m", 5_000, retried_at=5_000, retry=17)
    episodes = [trace_of(checkpoint(failures=each)).episode for each in ((), older[:1], older, (*older, newer))]
    assert episodes == [0, 1, 2, 17]


def test_no_two_spans_of_an_execution_have_one_id() -> None:
    numbers = range(6)
    ids = [execution_span(SEED, episode) for episode in numbers]
    ids += [moment_span(SEED, "parked", at) for at in numbers]
    for token in (TOKEN, step_token(SEED, "ship")):
        ids += [step_span(token, episode) for episode in numbers]
        ids += [attempt_span(token, *which) for which in itertools.product(numbers, numbers)]
    assert len(set(ids)) == len(ids)
    assert all(0 < each < 2**64 for each in ids)


def test_ids_are_the_same_for_ever() -> None:
    """Processes of different versions make spans of one execution."""
    assert f"{trace_of(checkpoint()).trace_id:032x}" == "fabde3bca27fc62063fd9c50ea664684"
    assert f"{execution_span(SEED, 0):016x}" == "c37236c1650da8ce"
    assert f"{step_span(TOKEN, 0):016x}" == "b1c75fa546235cc5"
    assert f"{attempt_span(TOKEN, 1, 0):016x}" == "183190f62f0cb629"
