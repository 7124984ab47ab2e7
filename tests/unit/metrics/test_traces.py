"""Spans by the SDK: ids, sampling, and that nothing of it harms what is observed."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from spans import Collected, context_of, id_of

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import ExecutionEnded
from stepwell.core.records import Meta
from stepwell.core.status import COMPLETED, ERROR
from stepwell.core.token import token_seed
from stepwell.core.tracing import execution_span, trace_of
from stepwell.flow.context import StepContext
from stepwell.metrics import traces as traces_module
from stepwell.metrics.traces import PlannedIds

ROOT = Path(__file__).resolve().parents[3]
MAKERS = ("spans.py", "traces.py", "providers.py")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"


def ended(execution_id: str, caller: str = "", state: str = "") -> tuple[ExecutionEnded, Checkpoint]:
    """The end of an execution."""
    seed = token_seed(execution_id, 0, bytes(32))
    meta = Meta("checkout", 1_000, "hash", trace=caller, trace_state=state)
    cp = Checkpoint(execution_id, meta, b"{}", seed, COMPLETED, 1, result=b"1", started_at=2_000, ended_at=3_000)
    return ExecutionEnded(execution_id, "checkout", COMPLETED, "", 1_000, 3_000), cp


def test_a_span_has_the_ids_that_derive_from_its_execution_whatever_is_active_here() -> None:
    collected = Collected()
    event, cp = ended("x")
    with collected.provider.get_tracer("users").start_as_current_span("mine"):
        collected.traces().follow(event, cp)
    span = collected.one("execution checkout")
    assert context_of(span).trace_id == trace_of(cp).trace_id
    assert id_of(span) == execution_span(cp.seed, 0)
    assert span.parent is None


def test_the_trace_of_the_execution_that_was_followed_last_is_told_if_it_is_wanted() -> None:
    traces = Collected().traces()
    assert traces.trace("x") == ""
    event, cp = ended("x")
    traces.follow(event, cp)
    assert traces.trace("x") == f"{trace_of(cp).trace_id:032x}"
    assert traces.trace("y") == ""
    called, by = ended("z", CALLER + "1")
    traces.follow(called, by)
    assert traces.trace("z") == CALLER.split("-")[1]
    unsampled = Collected(ALWAYS_OFF).traces()
    unsampled.follow(event, cp)
    assert unsampled.trace("x") == ""


def test_other_spans_of_the_provider_get_ids_of_their_own() -> None:
    collected = Collected()
    traces = collected.traces()
    event, cp = ended("x")
    traces.follow(event, cp)
    tracer = collected.provider.get_tracer("users")
    spans = [tracer.start_span("mine").get_span_context() for _ in range(2)]
    assert len({each.span_id for each in spans} | {execution_span(cp.seed, 0)}) == 3
    assert len({each.trace_id for each in spans} | {trace_of(cp).trace_id}) == 3


def test_two_shards_may_share_a_provider() -> None:
    collected = Collected()
    for number, shard in enumerate(("w/0", "w/1")):
        collected.traces(shard).follow(*ended(f"x{number}"))
    ids = {id_of(span) for span in collected.spans}
    assert ids == {execution_span(ended(f"x{number}")[1].seed, 0) for number in range(2)}
    assert isinstance(collected.provider.id_generator, PlannedIds)


@pytest.mark.parametrize("sampler", [TraceIdRatioBased(0.5), ParentBased(TraceIdRatioBased(0.5))])
def test_all_processes_come_to_the_same_decision_which_is_that_of_the_sampler(sampler: Sampler) -> None:
    collected = Collected(sampler)
    traces, elsewhere = collected.traces(), Collected(sampler).traces("w/1")
    ends = [ended(f"x{number}") for number in range(60)]
    for event, cp in ends:
        traces.follow(event, cp)
    sampled = [cp for _, cp in ends if elsewhere.flags(cp)]
    assert {id_of(span) for span in collected.spans} == {execution_span(cp.seed, 0) for cp in sampled}
    assert 10 < len(sampled) < 50


def test_the_callers_decision_is_taken_over() -> None:
    collected = Collected(ParentBased(ALWAYS_OFF))
    traces = collected.traces()
    for name, caller in (("sampled", CALLER + "1"), ("unsampled", CALLER + "0"), ("own", "")):
        traces.follow(*ended(name, caller))
    assert [(span.attributes or {})["stepwell.execution.id"] for span in collected.spans] == ["sampled"]


def test_the_callers_state_goes_along() -> None:
    collected = Collected()
    traces = collected.traces()
    traces.follow(*ended("x", CALLER + "1", "vendor=opaque,other=2"))
    assert context_of(collected.one("execution checkout")).trace_state.to_header() == "vendor=opaque,other=2"


@pytest.mark.pain(45)
def test_a_failure_is_told_without_its_secrets() -> None:
    collected = Collected()
    event, cp = ended("x")
    event = replace(event, status=ERROR, reason="flow raised", error_type="OSError", message="redis://:hunter2@db away")
    collected.traces().follow(event, replace(cp, status=ERROR))
    span = collected.one("execution checkout")
    assert span.status.description == "OSError: redis://:***@db away"
    assert [each.name for each in span.events] == ["stepwell.began", "exception"]
    assert "hunter2" not in span.to_json()


class Broken(Sampler):
    """A sampler of somebody else."""

    def should_sample(self, *_: object, **__: object) -> SamplingResult:
        raise RuntimeError("no idea")

    def get_description(self) -> str:
        return "Broken"


def test_what_fails_while_a_span_is_made_is_told_once_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    traces = Collected(Broken()).traces()
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            event, cp = ended(f"x{number}")
            traces.follow(event, cp)
            assert traces.flags(cp) == 0
    assert caplog.messages == ["a span of execution x0 could not be made; later ones may fail as well"]


@pytest.mark.threads
def test_the_end_waits_only_so_long_for_a_collector_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepwell.metrics.traces.FLUSH_SECONDS", 0.01)
    answers = threading.Event()
    collected = Collected()
    monkeypatch.setattr(collected.provider, "force_flush", lambda: answers.wait(20))
    with caplog.at_level(logging.WARNING):
        collected.traces().close()
    answers.set()
    assert caplog.messages == ["the last spans could not be exported within 0.01 s and are lost"]


def test_garbage_in_place_of_a_span_makes_none_active() -> None:
    context = StepContext("x", "f", "s", "s", 1, "t", "x:t", 1, traceparent="garbage")
    Collected().traces().enter(context)
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_context_that_can_not_be_entered_keeps_no_body_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_context: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(traces_module.contexts, "attach", broken)
    Collected().traces().enter(StepContext("e", "f", "s", "s", 1, "t", "e:t", 7, traceparent=CALLER + "1"))


def test_the_page_on_traces_names_exactly_what_spans_have() -> None:
    page = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(stepwell\.[a-z_.]+)`", page))
    source = "".join((ROOT / "metrics" / name).read_text(encoding="utf-8") for name in MAKERS)
    assert told == set(re.findall(r'"(stepwell\.[a-z_.]+)"', source)) - {"stepwell.traces"}
    assert not [name for name in told if any(other.startswith(name + ".") for other in told)], "no name holds another"
