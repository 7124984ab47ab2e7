"""Whether a process traces, where its spans go, and what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from stepwell.core.errors import UsageError
from stepwell.metrics import tracing
from stepwell.metrics.exporting import Exporting
from stepwell.metrics.providers import exporters_of, provider_of, target_of
from stepwell.metrics.tracing import TraceSetup, named_but_missing, wanted

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
SETUP = TraceSetup("rack-7", "rack-7/0")


@pytest.mark.parametrize(
    ("asked", "environment", "traces"),
    [
        (None, {}, False),
        (None, ENDPOINT, True),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (None, {"OTEL_TRACES_EXPORTER": "console"}, True),
        (None, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        (None, {**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        (False, ENDPOINT, False),
        (True, {}, True),
    ],
)
def test_spans_are_made_if_asked_for_or_if_the_standard_variables_say_where_they_go(
    asked: bool | None, environment: dict[str, str], traces: bool
) -> None:
    assert wanted(asked, environment) is traces


def test_asked_for_without_what_makes_them_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "installed", lambda: False)
    with pytest.raises(UsageError, match=r"pip install 'stepwell\[otel\]'"):
        wanted(True, {})
    assert not wanted(None, ENDPOINT)
    assert named_but_missing(ENDPOINT)
    assert not named_but_missing({})


def test_asked_for_and_forbidden_is_an_error() -> None:
    with pytest.raises(UsageError, match="OTEL_SDK_DISABLED=true"):
        wanted(True, {"OTEL_SDK_DISABLED": "true"})


def test_exporters_are_those_that_the_variables_name() -> None:
    assert [type(each) for each in exporters_of({})] == [OTLPSpanExporter]
    named = {"OTEL_TRACES_EXPORTER": "console, otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert [type(each) for each in exporters_of(named)] == [ConsoleSpanExporter, OTLPSpanExporter]
    assert exporters_of({"OTEL_TRACES_EXPORTER": "none"}) == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "pigeon"}, "'pigeon', which is not installed"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "opentelemetry-exporter-otlp-proto-grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "may be http/protobuf, grpc"),
    ],
)
def test_what_can_not_be_exported_so_is_told(environment: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exporters_of(environment)


@pytest.mark.threads
def test_spans_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"OTEL_TRACES_EXPORTER": "none"}
    resource = provider_of(SETUP, nowhere).resource.attributes
    assert resource["service.name"] == "stepwell"
    assert resource["service.instance.id"] == "rack-7/0"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    assert provider_of(SETUP, nowhere).resource.attributes["service.name"] == "shop"


def test_where_spans_go_is_told_without_credentials() -> None:
    assert target_of({}) == "a collector on this host"
    assert target_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:hunter2@collector"}) == "https://:***@collector"
    assert target_of({"OTEL_TRACES_EXPORTER": "console"}) == "console"


class Collector(SpanExporter):
    """Takes spans, or refuses them."""

    def __init__(self) -> None:
        self.taken = 0
        self.away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.away:
            return SpanExportResult.FAILURE
        self.taken += len(spans)
        return SpanExportResult.SUCCESS


@pytest.mark.threads
def test_spans_that_are_lost_are_counted_and_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    collector = Collector()
    exporting = Exporting(collector, schedule_delay_millis=3_600_000)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(exporting)
    tracer = provider.get_tracer("test")
    logging.getLogger("opentelemetry.sdk").setLevel(logging.ERROR)

    def make(spans: int) -> None:
        for _ in range(spans):
            tracer.start_span("s").end()
        provider.force_flush()

    with caplog.at_level(logging.WARNING, "stepwell.traces"):
        make(3)
        assert (collector.taken, exporting.refused, exporting.dropped) == (3, 0, 0)
        assert caplog.messages == []
        collector.away = True
        make(2)
        assert (collector.taken, exporting.refused, exporting.dropped) == (3, 2, 0)
    assert caplog.messages == ["2 spans of this process are lost so far: they could not be exported"]
    provider.shutdown()


@pytest.mark.threads
def test_a_full_queue_drops_and_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    exporting = Exporting(collector)
    exporting._ended = 7  # of which the queue took none
    with caplog.at_level(logging.WARNING, "stepwell.traces"):
        exporting.force_flush()
    assert exporting.dropped == 7
    assert "7 of them found the queue full" in caplog.text
    exporting.shutdown()
