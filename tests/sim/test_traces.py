"""Spans of executions: one tree, whatever happens to the shards that run them."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from sim.bodies import work
from sim.explore.run import Exploration, _patched
from sim.explore.schedule import draw
from sim.harness import ShardDied, World
from sim.reference import play, reference
from sim.test_crashes import COMMITS
from spans import Collected, check_tree, context_of, id_of, links_of, parent_of, times_of, told

from stepwell import Retry, current_step, flow, gather, sleep, step
from stepwell.actors.failpoints import AFTER_REPLY, BEFORE_SEND, FailAt
from stepwell.core.errors import FatalError
from stepwell.core.tracing import read_traceparent
from stepwell.metrics.logs import LogSubscriber
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.sheetreader import SheetReader
from stepwell.metrics.subscriber import MetricsSubscriber

MakeWorld = Callable[..., World]
FEW = Retry(max_attempts=3, base=2, factor=2, jitter=0)
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALLERS_TRACE = 0x0AF7651916CD43DD8448EB211C80319C
CALLERS_SPAN = 0xB7AD6B7169203331
broken: set[str] = set()
seen: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _mended() -> None:
    broken.clear()
    seen.clear()


@step(retry=FEW)
async def reserve() -> str:
    await work(1.0)
    if current_step().attempt < 3:
        raise OSError("redis://:hunter2@db is away")
    return "reserved"


@step(retry=FEW)
async def charge() -> str:
    await work(5.0)
    if "charge" in broken:
        raise FatalError("card refused")
    return "charged"


@step
async def ship() -> str:
    await work(1.0)
    span = trace.get_current_span().get_span_context()
    seen["active"], seen["context"] = span, current_step()
    return "shipped"


@flow
async def shop() -> str:
    await reserve()
    await sleep(10)
    await charge()
    return await ship()


@flow
async def many() -> list[str]:
    return list(await gather(reserve(), charge()))


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def world(make_world: MakeWorld, collected: Collected) -> World:
    made = make_world(shop, many)
    made.tracing = collected.traces
    return made


def test_an_execution_its_steps_and_their_attempts_are_one_tree(world: World, collected: Collected) -> None:
    world.shard()
    began = world.clock.now_ms()
    world.start(shop, "x")
    world.run(lambda: world.ended("x"))
    check_tree(collected.spans)
    whole = collected.one("execution shop")
    assert times_of(whole) == (began, world.show("x")["ended_at"])
    assert told(whole, "execution.status") == "completed"
    steps = collected.named("step reserve", "step charge", "step ship")
    assert [parent_of(each) for each in steps] == [id_of(whole)] * 3
    (reserved, _, _) = steps
    attempts = collected.named("attempt reserve")
    assert [parent_of(each) for each in attempts] == [id_of(reserved)] * 3
    assert [told(each, "attempt.number") for each in attempts] == [1, 2, 3]
    assert [links_of(each) for each in attempts] == [[], [id_of(attempts[0])], [id_of(attempts[1])]]
    assert times_of(reserved) == (times_of(attempts[0])[0], times_of(attempts[2])[1])
    waits = [times_of(later)[0] - times_of(earlier)[1] for earlier, later in itertools.pairwise(attempts)]
    assert waits == [2000, 4000], "the backoffs are the gaps between attempts"


def test_log_lines_and_exemplars_of_a_traced_execution_name_its_trace(
    make_world: MakeWorld, collected: Collected
) -> None:
    world = make_world(shop)
    traces = collected.traces("w/0")
    world.tracing = lambda _: traces
    lines: list[dict[str, object]] = []

    class Catch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.__dict__["fields"])

    logger = logging.Logger("stepwell.events", logging.INFO)
    logger.addHandler(Catch())
    log, sheet = LogSubscriber(logger, world.clock.monotonic), Sheet.in_memory()
    sheet.trace = log.trace = traces.trace
    shard = world.shard()
    shard.context.bus.subscribe(log)
    shard.context.bus.subscribe(MetricsSubscriber(sheet))
    broken.add("charge")
    world.start(shop, "x")
    world.start(shop, "y", trace=CALLER)
    world.run(lambda: world.ended("x", "y"))
    traces_of = {told(span, "execution.id"): f"{context_of(span).trace_id:032x}" for span in collected.spans}
    assert traces_of["y"] == f"{CALLERS_TRACE:032x}" != traces_of["x"]
    assert {fields["event"] for fields in lines} == {"AttemptFailed", "StepGaveUp", "ExecutionEnded"}
    assert {(fields["execution"], fields["trace"]) for fields in lines} == set(traces_of.items())
    reader = SheetReader(sheet.source.read)
    reader.look()
    marks = [mark for _, _, mark in reader.marks()]
    assert marks
    assert all(mark.trace == traces_of[mark.execution] for mark in marks)


@pytest.mark.pain(45)
def test_a_failed_attempt_tells_its_error_without_secrets_and_when_the_next_is_due(
    world: World, collected: Collected
) -> None:
    world.shard()
    world.start(shop, "x")
    world.run(lambda: world.ended("x"))
    first, second, third = collected.named("attempt reserve")
    assert [each.status.is_ok for each in (first, second, third)] == [False, False, True]
    assert first.status.description == "OSError: redis://:***@db is away"
    exception, backoff = first.events
    assert exception.attributes == {"exception.type": "OSError", "exception.message": "redis://:***@db is away"}
    assert backoff.name == "stepwell.backoff"
    assert told(first, "retry.delay_ms") == 2000
    assert told(first, "retry.due_ms") == times_of(second)[0]
    assert "hunter2" not in str([span.to_json() for span in collected.spans])


@pytest.mark.pain(42)
def test_after_a_crash_the_next_owner_completes_the_tree(world: World, collected: Collected) -> None:
    world.shard()
    world.start(shop, "x")
    world.run(lambda: world.ledger.of("x", "charge"))
    world.run_for(2.0)
    world.crash()
    world.shard()
    world.run(lambda: world.ended("x"))
    check_tree(collected.spans)
    cut, again = collected.named("attempt charge")
    assert [told(each, "attempt.number") for each in (cut, again)] == [1, 1]
    assert [told(each, "attempt.outcome") for each in (cut, again)] == ["interrupted", "completed"]
    assert links_of(again) == [id_of(cut)]
    assert [told(each, "shard.id") for each in (collected.one("step reserve"), collected.one("step charge"))] == [
        "winc1",
        "winc2",
    ]
    assert told(collected.one("step charge"), "step.interruptions") == 1


@pytest.mark.pain(42)
def test_a_retry_by_hand_goes_on_in_the_same_tree(world: World, collected: Collected) -> None:
    broken.add("charge")
    world.shard()
    world.start(shop, "x")
    world.run(lambda: world.ended("x"))
    world.run_for(60.0)
    broken.clear()
    asked = world.clock.now_ms()
    world.retry("x")
    world.run(lambda: world.status("x") == "completed")
    check_tree(collected.spans)
    failed, whole = collected.named("execution shop")
    assert [each.status.is_ok for each in (failed, whole)] == [False, True]
    assert links_of(whole) == [id_of(failed)]
    assert times_of(whole)[0] == asked
    first, second = collected.named("attempt charge")
    assert links_of(second) == [id_of(first)]
    assert [told(each, "attempt.number") for each in (first, second)] == [1, 2]
    assert [parent_of(each) for each in collected.named("step charge")] == [id_of(failed), id_of(whole)]


def test_a_retry_by_hand_of_a_gather_brings_back_its_siblings_under_new_spans(
    world: World, collected: Collected
) -> None:
    broken.add("charge")
    world.shard()
    world.start(many, "x")
    world.run(lambda: world.ended("x"))
    broken.clear()
    world.retry("x")
    world.run(lambda: world.status("x") == "completed")
    check_tree(collected.spans)


@pytest.mark.pain(21)
def test_the_trace_is_that_of_the_caller_and_no_key_depends_on_it(
    make_world: MakeWorld, world: World, collected: Collected
) -> None:
    world.shard()
    world.start(shop, "x", trace=CALLER)
    world.run(lambda: world.ended("x"))
    check_tree(collected.spans, root=CALLERS_SPAN)
    whole = collected.one("execution shop")
    assert context_of(whole).trace_id == CALLERS_TRACE
    assert parent_of(whole) == CALLERS_SPAN
    assert world.show("x")["trace"] == f"{CALLERS_TRACE:032x}"
    untraced = make_world(shop)
    untraced.shard()
    untraced.start(shop, "x")
    untraced.run(lambda: untraced.ended("x"))
    assert "trace" not in untraced.show("x")
    keys = [run.key for run in untraced.ledger.of("x")]
    assert [run.key for run in world.ledger.of("x")] == keys
    assert {told(each, "idempotency_key") for each in collected.named("attempt reserve", "attempt ship")} <= set(keys)


def test_in_a_body_the_attempts_span_is_the_active_one(world: World, collected: Collected) -> None:
    world.shard()
    world.start(shop, "x")
    world.run(lambda: world.ended("x"))
    active = seen["active"]
    assert (active.trace_id, active.span_id) == (
        context_of(collected.one("attempt ship")).trace_id,
        id_of(collected.one("attempt ship")),
    )
    header = read_traceparent(seen["context"].traceparent)
    assert header is not None
    assert (header.trace_id, header.span_id, header.flags) == (active.trace_id, active.span_id, 1)


def test_without_anybody_who_makes_spans_the_callers_is_passed_on(make_world: MakeWorld) -> None:
    world = make_world(shop)
    world.shard()
    world.start(shop, "x", trace=CALLER)
    world.run(lambda: world.ended("x"))
    assert seen["context"].traceparent == CALLER
    world.start(shop, "y")
    world.run(lambda: world.ended("y"))
    assert seen["context"].traceparent == ""


def test_what_the_caller_does_not_sample_has_no_spans(world: World, collected: Collected) -> None:
    world.shard()
    world.start(shop, "x", trace=CALLER[:-1] + "0")
    world.run(lambda: world.ended("x"))
    assert list(collected.spans) == []
    assert seen["context"].traceparent.endswith("-00")


@pytest.mark.parametrize("when", [2.0, 3.5, 12.0, 20.0])
def test_a_cancelled_execution_leaves_no_orphans(world: World, collected: Collected, when: float) -> None:
    world.shard()
    world.start(shop, "x")
    world.run_for(when)
    world.cancel("x")
    world.run(lambda: world.ended("x"))
    check_tree(collected.spans)
    assert told(collected.one("execution shop"), "execution.status") == "cancelled"


def test_what_is_parked_shows_and_a_cancel_of_it_leaves_no_orphans(world: World, collected: Collected) -> None:
    world.shard()
    world.start(shop, "x")
    world.run_for(2.0)
    world.crash()
    world.shard(flows=())
    world.run(lambda: world.status("x") == "parked")
    world.cancel("x")
    world.run(lambda: world.ended("x"))
    check_tree(collected.spans)
    assert told(collected.one("parked shop"), "reason") == "not deployed here"
    assert told(collected.one("step reserve"), "step.status") == "cancelled"
    assert told(collected.one("step reserve"), "step.attempts") == 1


@pytest.mark.pain(42)
@pytest.mark.parametrize("seed", [3, 105, 182, 249, 264, 302])
def test_random_schedules_double_no_span_and_leave_no_orphans_where_nobody_dies(seed: int) -> None:
    collected, run = Collected(), Exploration(draw(seed))
    run.world.tracing = collected.traces
    with contextlib.closing(run.world), _patched(run.schedule, run.world):
        run.go()
    spans = {(context_of(span).trace_id, id_of(span)): span for span in collected.spans}
    assert spans
    assert len(spans) == len(collected.spans)
    if run.schedule.setting.gentle:
        parents = {(context_of(span).trace_id, parent_of(span)) for span in collected.spans if parent_of(span)}
        assert parents <= set(spans)


@pytest.mark.pain(42)
@pytest.mark.parametrize("side", [BEFORE_SEND, AFTER_REPLY])
@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_a_crash_at_any_commit_doubles_no_span(
    make_world: MakeWorld, collected: Collected, side: str, number: int
) -> None:
    world = make_world(reference)
    world.tracing = collected.traces
    world.parents = number % 2 == 0
    world.shard(failpoints=FailAt(side, number, die))
    world.checks.append(lambda: None if world.shards else world.shard() and None)
    play(world)
    spans = list(collected.spans)
    if side == BEFORE_SEND:
        check_tree(spans)
    else:  # what was committed and not told yet is missing
        ids = [id_of(span) for span in spans]
        assert len(ids) == len(set(ids))
        assert len({context_of(span).trace_id for span in spans}) == 1
        assert len(collected.named("execution reference")) == (number < COMMITS)


def die() -> None:
    raise ShardDied
