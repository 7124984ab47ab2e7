"""Starting executions: what is refused before anything is written, and what an id that is taken means."""

from __future__ import annotations

import contextvars

import pytest
from redis import exceptions as rx
from spans import Collected

from stepwell import flow, step
from stepwell.client.moves import Recover
from stepwell.client.repeats import FAILOVER_SECONDS
from stepwell.core.errors import (
    ExecutionExists,
    InvalidInput,
    InvalidName,
    StoreError,
    StoreUnfit,
    UnknownFlow,
    UsageError,
)
from stepwell.core.row import parse
from stepwell.flow.context import StepContext, running_step
from stepwell.flow.tracing import adopt
from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.namespace import open_namespace


@flow
async def checkout(n: int, note: str = "") -> int:
    return n


def test_a_start_makes_a_row_that_an_owner_can_read(world):
    execution_id = world.run(world.talk.start(checkout, {"n": 7}, None, unchecked=False))
    row = {name.decode(): value for name, value in world.redis.hgetall(world.keys.row(execution_id)).items()}
    checkpoint = parse(execution_id, row, b"s" * 32)
    assert (execution_id, checkpoint.status, checkpoint.meta.flow, checkpoint.input) == (
        "id1",
        "queued",
        "checkout",
        b'{"n":7}',
    )
    assert [entry[b"type"] for entry in world.inbox(execution_id)] == [b"start"]
    seconds, _ = world.redis.time()
    assert abs(checkpoint.meta.created_at - seconds * 1000) < 60_000, "the server's time, not the virtual clock's"


def meta_of(world, execution_id):
    row = {name.decode(): value for name, value in world.redis.hgetall(world.keys.row(execution_id)).items()}
    return parse(execution_id, row, b"s" * 32).meta


def test_a_start_within_a_span_is_part_of_its_trace(world):
    tracer = Collected().provider.get_tracer("users")
    with tracer.start_as_current_span("request") as span:
        inside = world.run(world.talk.start(checkout, {"n": 7}, None, unchecked=False))
        again = world.run(world.talk.start(checkout, {"n": 7}, inside, unchecked=False))
    outside = world.run(world.talk.start(checkout, {"n": 7}, None, unchecked=False))
    of = span.get_span_context()
    assert meta_of(world, inside).trace == f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"
    assert again == inside
    assert meta_of(world, outside).trace == ""
    assert b"trace" not in world.redis.hget(world.keys.row(outside), "meta"), "nothing is kept where there is none"


def test_a_start_in_a_traced_program_is_part_of_its_trace(world):
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def start(traceparent):
        adopt({"TRACEPARENT": traceparent, "TRACESTATE": "vendor=1"})
        return world.run(world.talk.start(checkout, {"n": 7}, None, unchecked=False))

    traced = meta_of(world, contextvars.copy_context().run(start, header))
    assert (traced.trace, traced.trace_state) == (header, "vendor=1")
    assert meta_of(world, contextvars.copy_context().run(start, "garbage")).trace == ""


def test_a_start_within_a_traced_step_is_part_of_its_trace(world):
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    context = StepContext("e", "f", "s", "s", 1, "t", "e:t", 1, traceparent=header, tracestate="vendor=1")
    token = running_step.set(context)
    try:
        execution_id = world.run(world.talk.start(checkout, {"n": 7}, None, unchecked=False))
    finally:
        running_step.reset(token)
    assert (meta_of(world, execution_id).trace, meta_of(world, execution_id).trace_state) == (header, "vendor=1")


def test_the_same_start_again_is_the_same_execution_whatever_the_order_of_its_keys(world):
    assert world.start("e1", a=1, b={"x": 1, "y": [2]}) == world.start("e1", b={"y": [2], "x": 1}, a=1) == "e1"
    assert len(world.inbox()) == 1


def test_an_id_that_is_taken_by_another_input_or_flow_is_refused(world):
    world.start("e1", n=1)
    with pytest.raises(ExecutionExists, match="e1 of flow checkout exists already with another input"):
        world.start("e1", n=2)
    with pytest.raises(ExecutionExists, match="e1 exists already, of flow checkout and not of refund"):
        world.start("e1", flow="refund", n=1)
    assert len(world.inbox()) == 1


def test_a_row_that_lost_its_plain_flow_and_hash_is_compared_by_its_meta(world):
    world.start("e1", n=1)
    world.redis.hdel(world.keys.row("e1"), "flow", "input_hash")
    assert world.start("e1", n=1) == "e1"
    with pytest.raises(ExecutionExists, match="another input"):
        world.start("e1", n=2)
    world.put("e1", meta=b"garbage")
    with pytest.raises(ExecutionExists, match="unreadable"):
        world.start("e1", n=1)


@pytest.mark.parametrize("lost", ["EVALSHA", "HMGET", "HSETNX"])
def test_a_start_whose_reply_is_lost_is_repeated_and_changes_nothing(world, lost):
    world.lose_reply_of(lost, lost)
    assert world.start("e1", n=1) == "e1"
    assert world.lost == [], "each fault has happened"
    assert len(world.inbox()) == 1
    assert world.redis.hget(world.keys.row("e1"), "rev") == b"1"


def test_repetition_is_bounded(world):
    world.start("e0")
    world.go_away(10**6)
    with pytest.raises(LinkDown):
        world.start("e1")
    assert world.kinds(Recover) == 3
    assert world.clock.monotonic() < 2


@pytest.mark.pain(14)
@pytest.mark.parametrize("kind", ["TRYAGAIN", "CLUSTERDOWN"])
def test_what_a_cluster_refuses_for_a_moment_is_tried_again(world, kind):
    world.refused = [StoreRefused("the slot moves", kind)] * 2
    assert world.run(world.talk.start("checkout", {"n": 1}, "e1", True)) == "e1"
    assert [move.seconds for move in world.moves if isinstance(move, Recover)] == [0.05, 0.2]
    world.refused = [StoreRefused("the slot moves", kind)] * 9
    with pytest.raises(StoreRefused):
        world.run(world.talk.describe("e1"))


@pytest.mark.pain(11)
def test_a_start_that_meets_a_failover_waits_for_its_end(world):
    readonly = StoreRefused("You can't write against a read only replica.", "READONLY")
    world.start("e0")
    world.refused = [readonly] * 4
    assert world.start("e1") == "e1"
    assert 0.5 < world.clock.monotonic() < FAILOVER_SECONDS
    world.refused = [readonly] * 99
    with pytest.raises(StoreRefused, match="READONLY"):
        world.start("e2")
    assert world.clock.monotonic() < 2 * FAILOVER_SECONDS + 1


def test_a_server_that_has_never_said_anything_is_asked_once(world):
    silent = rx.TimeoutError("Timeout reading from socket")
    world.refused = [silent] * 9
    with pytest.raises(LinkDown):
        world.start("e1")
    assert world.kinds(Recover) == 0
    world.refused = []
    world.start("e1")
    world.refused = [silent] * 3
    assert world.start("e2") == "e2", "one that has answered may be held up"
    assert world.kinds(Recover) == 3


def test_a_full_server_is_told_at_once(world):
    world.refused = [StoreRefused("command not allowed", "OOM")]
    with pytest.raises(StoreRefused, match="OOM"):
        world.run(world.talk.start("checkout", {"n": 1}, "e1", True))
    assert not any(isinstance(move, Recover) for move in world.moves)


def test_a_refused_password_is_not_tried_again(world):
    world.refused = [rx.AuthenticationError("WRONGPASS")] * 9
    with pytest.raises(LinkDown):
        world.start("e1")
    assert world.kinds(Recover) == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "lacks n"),
        ({"n": 1, "m": 2}, "unknown m"),
        ({"n": "one"}, "does not fit"),
        ([1], "must be a JSON object"),
        ({1: 2}, "must be a JSON object"),
        ({"n": {1, object()}}, "can't be stored"),
        ({"n": 1, "note": "x" * (1 << 20)}, "too large"),
    ],
)
def test_an_input_that_does_not_fit_the_flow_is_refused_before_anything_is_sent(world, given, why):
    with pytest.raises(InvalidInput, match=why):
        world.run(world.talk.start(checkout, given, None, unchecked=True))
    assert world.moves == []


@pytest.mark.parametrize("execution_id", ["", " ", "a b", "x" * 129, "-a", "a/b", "ä", "a\n"])
def test_odd_execution_ids_are_refused(world, execution_id):
    with pytest.raises(InvalidName, match="execution id"):
        world.start(execution_id)
    assert world.moves == []


def test_what_is_no_flow_is_refused(world):
    @step
    def charge() -> None: ...

    with pytest.raises(InvalidName, match="flow name"):
        world.start(flow="no flow!")
    for other in (charge, len, None):
        with pytest.raises(UsageError, match="made with @flow"):
            world.run(world.talk.start(other, {}, None, unchecked=True))


def checked(world, name, **given):
    return world.run(world.talk.start(name, given, None, unchecked=False))


def test_without_a_living_worker_any_flow_is_accepted(world):
    world.worker("silent", age_ms=10_001, refund={})
    assert checked(world, "anything", a=1) == "id1"


def test_a_flow_that_no_living_worker_knows_is_refused_with_what_it_may_have_meant(world):
    world.worker("w1", checkout={"n": True}, refund={})
    world.worker("w2", report={})
    with pytest.raises(UnknownFlow, match=r"'chekout' \(did you mean checkout\?\)"):
        checked(world, "chekout", n=1)
    with pytest.raises(UnknownFlow, match=r"\(they know checkout, refund, report\)"):
        checked(world, "zzz")
    assert world.redis.keys("*:x:*") == []
    assert world.run(world.talk.start("zzz", {}, None, unchecked=True))


def test_parameters_that_workers_published_are_checked(world):
    world.worker("w1", checkout={"n": True, "note": False})
    with pytest.raises(InvalidInput, match="lacks n"):
        checked(world, "checkout")
    with pytest.raises(InvalidInput, match="unknown m"):
        checked(world, "checkout", n=1, m=1)
    assert checked(world, "checkout", n=1)


def test_in_a_rolling_deploy_one_worker_that_takes_the_input_is_enough(world):
    world.worker("old", checkout={"n": True})
    world.worker("new", checkout={"n": True, "m": True})
    assert checked(world, "checkout", n=1, m=1)
    assert checked(world, "checkout", n=1)
    with pytest.raises(InvalidInput):
        checked(world, "checkout", m=1)


def test_values_of_a_kind_that_no_worker_takes_are_refused_by_name(world):
    @flow
    async def sized(n: int, note: str | None = None, lines: list[int] | None = None) -> None: ...

    world.offer("w1", sized)
    fault = r"the input of flow sized does not fit its parameters: Expected `int`, got `str` - at `\$\.n`"
    with pytest.raises(InvalidInput, match=fault):
        checked(world, "sized", n="x")
    with pytest.raises(InvalidInput, match=fault):
        sized.input.encode({"n": "x"})
    with pytest.raises(InvalidInput, match=r"Expected `array \| null`, got `object` - at `\$\.lines`"):
        checked(world, "sized", n=1, lines={})
    assert checked(world, "sized", n=1, note=None, lines=["what is in it only its code knows"])
    world.worker("older", sized={"n": True})
    assert checked(world, "sized", n="x"), "who does not say it may take it"


def test_a_flow_at_hand_knows_its_own_parameters_better_than_the_workers(world):
    world.worker("old", checkout={"m": True})
    assert world.run(world.talk.start(checkout, {"n": 1}, None, unchecked=False))


def test_a_worker_that_came_a_moment_ago_is_seen(world):
    world.worker("w1", refund={})
    checked(world, "refund")
    world.worker("w2", checkout={"n": True})
    assert checked(world, "checkout", n=1)


def test_heartbeats_are_not_asked_for_at_each_start(world):
    for _ in range(100):
        world.start(None)
    assert world.sent.count("HGETALL") <= 2
    world.clock.advance(5.1)
    world.start(None)
    assert world.sent.count("HGETALL") <= 3


@pytest.mark.parametrize("flows", [{"flows": ["checkout"]}, {"flows": {"checkout": 7}}, {}])
def test_a_worker_that_does_not_say_what_it_knows_refuses_nothing(world, flows):
    import msgspec

    seconds, _ = world.redis.time()
    world.redis.hset(world.keys.workers, "odd", msgspec.json.encode({"at": seconds * 1000, **flows}))
    assert checked(world, "checkout", x=1)


def test_who_comes_first_settles_the_partitions_and_a_worker_agrees(world):
    world.start()
    assert world.redis.hgetall(world.keys.meta) == {b"format": b"1", b"partitions": b"4"}
    opened = open_namespace(world.redis, "t", 4, new_secret=lambda: b"s" * 32)
    assert opened.secret == b"s" * 32
    with pytest.raises(StoreUnfit, match="4 partitions"):
        open_namespace(world.redis, "t", 8, new_secret=lambda: b"s" * 32)


def test_a_client_takes_the_partitions_that_the_namespace_has(world):
    world.start("e1")
    talk = world.new_talk(partitions=None)
    assert world.run(talk.describe("e1"))["id"] == "e1"
    assert world.run(talk.view.keys()).partitions == 4


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("partitions", "8", "8 partitions, not 4"),
        ("partitions", "many", "damaged"),
        ("partitions", "0", "damaged"),
        ("format", "2", "newer version"),
    ],
)
def test_a_namespace_that_is_not_what_the_client_expects_is_left_alone(world, field, value, why):
    world.redis.hset(world.keys.meta, mapping={"format": "1", "partitions": "4", field: value})
    with pytest.raises(StoreUnfit, match=why):
        world.start()
    assert world.redis.keys("*:x:*") == []


def test_looking_into_a_namespace_that_is_not_there_does_not_make_it(world):
    assert world.run(world.talk.list(None, None, 10)) == []
    assert world.redis.keys("*") == []


def test_a_creation_that_the_store_can_not_make_names_itself(world):
    world.redis.set(world.keys.row("e1"), "garbage")
    with pytest.raises(StoreError):
        world.start("e1")
