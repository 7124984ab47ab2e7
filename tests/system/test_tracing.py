"""Real workers export spans to a real collector."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from system.support.collector import Collector
from system.support.stage import HANG_SECONDS, Stage

TESTS = Path(__file__).resolve().parents[1]
TRACED = Path(__file__).parent / "support" / "traced.py"
USERS = {"in a task": "loop", "in a thread": "thread", "in a process": "process"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")  # who is answered late would send them once more
        monkeypatch.setenv("STEPWELL_TEST_SHOP", collector.url + "/pay")
        yield collector


@pytest.mark.pain(42)
def test_spans_of_all_processes_of_an_execution_make_one_tree_also_over_a_kill(
    stage: Stage, collector: Collector
) -> None:
    worker = stage.worker("--worker-id", "rack-7", flows=TRACED).ready()
    tracer = TracerProvider().get_tracer("caller")
    with stage.client() as client:
        with tracer.start_as_current_span("caller") as caller:
            client.start("traced", {}, "x")
        stage.eventually((stage.gates / "began").exists, "the last step is at work")
        for name in (*USERS, "while held", "step pay"):
            stage.eventually(lambda name=name: collector.named(name), f"what was made before is exported: {name}")
        (stage.gates / "began").unlink()
        os.kill(worker.shard, signal.SIGKILL)
        stage.eventually((stage.gates / "began").exists, "it is at work again")
        # It is in a process of its own now, which is not waited for long when its work is done.
        stage.eventually(lambda: len(collector.named("while held")) == 2, "its span is exported")
        stage.open("open")
        assert client.result("x", timeout=HANG_SECONDS) == "done"
        token = client.describe("x")["steps"][3]["token"]
    worker.signal(signal.SIGTERM)
    assert worker.finish() == 0
    above = caller.get_span_context()
    check(collector, f"{above.trace_id:032x}", f"{above.span_id:016x}")
    first, second = collector.named("attempt pay")
    assert [header["traceparent"] for header in collector.paid] == [
        f"00-{each.trace}-{each.id}-{above.trace_flags:02x}" for each in (first, second)
    ]
    assert {header["idempotency-key"] for header in collector.paid} == {f"x:{token}"}


def check(collector: Collector, trace_id: str, caller: str) -> None:
    spans = collector.spans
    assert {span.trace for span in spans} == {trace_id}
    ids = [span.id for span in spans]
    assert len(ids) == len(set(ids)), "none is exported twice"
    assert [span for span in spans if span.parent not in {*ids, caller}] == [], "none is an orphan"
    assert [span.name for span in spans if span.parent == caller] == ["execution traced"]
    by_id = {span.id: span for span in spans}
    for name, step in USERS.items():
        (own,) = collector.named(name)
        assert by_id[own.parent].name == f"attempt {step}"
    cut, again = sorted(collector.named("attempt held"), key=lambda span: span.ok)
    assert again.links == [cut.id]
    assert [by_id[own.parent].id for own in collector.named("while held")] == [cut.id, again.id]
    first, second = collector.named("attempt pay")
    assert (first.ok, second.ok, second.links) == (False, True, [first.id])
    assert {span.resource["service.name"] for span in spans} == {"stepwell"}
    assert {span.attributes["stepwell.shard.id"] for span in spans if "stepwell.flow.name" in span.attributes} == {
        "rack-7/0"
    }


def test_spans_go_through_the_provider_that_a_module_of_flows_has_set_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector() as collector:
        monkeypatch.setenv("STEPWELL_TEST_SHOP", collector.url + "/pay")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
        stage.open("open")
        worker = stage.worker(flows=TRACED.with_name("traced_own.py")).ready()
        with stage.client() as client:
            client.start("traced", {}, "x")
            assert client.result("x", timeout=HANG_SECONDS) == "done"
        worker.signal(signal.SIGTERM)
        assert worker.finish() == 0
        whole = collector.named("execution traced")[0]
        assert (whole.parent, whole.resource["service.name"]) == ("", "shop")
        by_id = {span.id: span for span in collector.spans}
        for name, step in USERS.items():
            if step != "process":
                assert by_id[collector.named(name)[0].parent].name == f"attempt {step}"
        assert collector.named("in a process") == [], "its process has not loaded the module with the provider"
        assert "export" not in worker.err


def test_a_worker_whose_collector_is_away_runs_and_ends_as_any_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("STEPWELL_TEST_SHOP", "http://127.0.0.1:9")
    worker = stage.worker("--otel", flows=TRACED).ready()
    with stage.client() as client:
        client.start("traced", {}, "x")
        stage.eventually(lambda: client.describe("x")["status"] == "error", "nobody takes the payment")
    worker.signal(signal.SIGTERM)
    assert worker.finish() == 0


def test_what_can_not_be_exported_as_asked_ends_the_worker_with_the_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    worker = stage.worker("--otel", flows=TRACED)
    assert worker.finish() != 0
    assert "pigeon" in worker.err
    assert not isinstance(trace.get_tracer_provider(), TracerProvider), "the test's own process is left alone"
