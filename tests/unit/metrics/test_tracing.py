"""Whether a process traces, where its spans go, and what becomes of them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from stepwell.core.errors import UsageError
from stepwell.core.limits import Limits
from stepwell.metrics import tracing
from stepwell.metrics.exporting import Exporting
from stepwell.metrics.hearing import hear_exporters, hidden_headers
from stepwell.metrics.providers import exporters_of, provider_of, target_of
from stepwell.metrics.traces import Traces, traces_of
from stepwell.metrics.tracing import TraceSetup, wanted, why_not, why_nowhere
from stepwell.worker.hosting import tracing_of
from stepwell.worker.settings import ShardSettings

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
    assert why_not(ENDPOINT) == "OpenTelemetry's SDK is not installed: pip install 'stepwell[otel]'"


def test_asked_for_and_forbidden_is_an_error() -> None:
    with pytest.raises(UsageError, match="OTEL_SDK_DISABLED=true"):
        wanted(True, {"OTEL_SDK_DISABLED": "true"})


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, ""),
        (ENDPOINT, ""),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, "OTEL_SDK_DISABLED=TRUE is set"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER=none is set"),
        ({"OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_why_no_spans_are_made_is_told_where_a_target_is_named(environment: dict[str, str], why: str) -> None:
    assert why_not(environment) == why


@pytest.mark.parametrize("named", ["none", " None", "none,none", "none, "])
def test_exporting_nothing_is_going_nowhere(named: str) -> None:
    environment = {**ENDPOINT, "OTEL_TRACES_EXPORTER": named}
    assert target_of(environment) == ""
    assert exporters_of(environment) == []
    assert why_nowhere(environment) == f"OTEL_TRACES_EXPORTER={named.strip()} is set"
    assert wanted(True, environment)
    assert not wanted(None, environment)


def test_exporting_something_is_not_going_nowhere() -> None:
    for environment in ({}, ENDPOINT, {"OTEL_TRACES_EXPORTER": "none,console"}, {"OTEL_TRACES_EXPORTER": " "}):
        assert why_nowhere(environment) == ""


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


@pytest.mark.pain(45)
@pytest.mark.parametrize("password", ["s3cret/w@x", "s3cret#w@x", "1/s3cret", "s3cret:w@x", "s3cret?w"])
@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_collectors_address_of_which_an_exporter_would_tell_the_password_is_refused(
    variable: str, password: str
) -> None:
    with pytest.raises(UsageError, match=f"{variable} is no usable address.*percent-encoded") as caught:
        exporters_of({variable: f"http://user:{password}@collector:4318"})
    assert "s3cret" not in str(caught.value)
    assert "http://:***@collector:4318" in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://collector", "http://u:p%2Fw@collector:4318/v1", "http://[::1]:4318", "collector:4317", ""]
)
def test_a_usable_address_of_a_collector_is_taken(address: str) -> None:
    assert len(exporters_of({"OTEL_EXPORTER_OTLP_ENDPOINT": address})) == 1


@pytest.mark.threads
def test_spans_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"OTEL_TRACES_EXPORTER": "none"}
    resource = provider_of(SETUP, None, nowhere)[0].resource.attributes
    assert resource["service.name"] == "stepwell"
    assert resource["service.instance.id"] == "rack-7/0"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    assert provider_of(SETUP, None, nowhere)[0].resource.attributes["service.name"] == "shop"


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


class Stand:
    """A provider with one exporter that is asked when told to, and what is said of losses."""

    def __init__(self, room: int = 2048) -> None:
        self.collector = Collector()
        self.lost: Counter[str] = Counter()
        self.now = [0.0]
        self.exporting = Exporting(
            self.collector,
            schedule_delay_millis=3_600_000,
            monotonic=lambda: self.now[0],
            lost=lambda why, spans: self.lost.update({why: spans}),
            environment={"OTEL_BSP_MAX_QUEUE_SIZE": str(room)},
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.exporting)
        self._tracer = self.provider.get_tracer("test")

    def make(self, spans: int) -> None:
        for _ in range(spans):
            self._tracer.start_span("s").end()


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand(room=4)
    yield made
    made.provider.shutdown()


@pytest.mark.threads
def test_spans_that_are_lost_are_counted_and_told(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stepwell.traces"):
        stand.make(3)
        stand.provider.force_flush()
        assert (stand.collector.taken, stand.lost) == (3, {})
        assert caplog.messages == []
        stand.collector.away = True
        stand.make(2)
        stand.provider.force_flush()
    assert (stand.collector.taken, stand.lost) == (3, {"export_failed": 2})
    assert caplog.messages == ["2 spans of this process are lost so far: they could not be exported"]


@pytest.mark.threads
def test_a_full_queue_drops_and_nobody_waits(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        stand.make(11)
    assert stand.lost == {"queue_full": 7}
    assert caplog.messages == [
        "1 spans of this process are lost so far: they could not be exported (1 of them found the queue full)"
    ]
    stand.provider.force_flush()
    assert stand.collector.taken == 4
    assert "7 of them found the queue full" in caplog.messages[-1]
    stand.make(4)
    stand.provider.force_flush()
    assert (stand.collector.taken, stand.lost) == (8, {"queue_full": 7})


@pytest.mark.threads
def test_an_exporter_that_raises_has_lost_its_batch(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_spans: object) -> SpanExportResult:
        raise ValueError("a bug of the exporter")

    monkeypatch.setattr(stand.collector, "export", fails)
    stand.make(3)
    stand.provider.force_flush()
    assert stand.lost == {"export_failed": 3}


AGAIN = "Transient error %s encountered while exporting %s batch, retrying in %.2fs."
ENOUGH = "Failed to export %s batch due to timeout, max retries or shutdown."
REFUSED = "code: %s, reason: %s"


def wrapped() -> BaseException:
    """As HTTP libraries bring a refused connection."""
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RuntimeError("max retries exceeded with redis://:hunter2@url") from error
    except RuntimeError as error:
        return error


@pytest.mark.pain(45)
@pytest.mark.threads
@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([(logging.ERROR, REFUSED, (401, "Unauthorized"))], "code: 401, reason: Unauthorized"),
        (
            [(logging.WARNING, AGAIN, (wrapped(), "spans", 1.0)), (logging.ERROR, ENOUGH, ("spans",))],
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        (
            [(logging.WARNING, AGAIN, ("Service Unavailable", "spans", 1.0)), (logging.ERROR, ENOUGH, ("spans",))],
            "Service Unavailable",
        ),
        ([(logging.ERROR, ENOUGH, ("spans",))], ENOUGH % "spans"),
        ([(logging.ERROR, "no: http://me:hunter2@c/ Bearer s3cr3t-key", ())], "no: http://:***@c/ ***"),
        ([(logging.ERROR, 295 * "x" + " s3cr3t-key " + 99 * "x", ())], 295 * "x" + " *** "),
        ([(logging.ERROR, "%s and %s", ("one",))], "%s and %s (TypeError)"),
        ([], ""),
    ],
)
def test_why_spans_are_lost_is_told_as_the_exporter_says_it(
    lines: list[tuple[int, str, tuple[object, ...]]],
    cause: str,
    stand: Stand,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporters = logging.getLogger("opentelemetry.exporter")
    monkeypatch.setattr(exporters, "handlers", [])
    monkeypatch.setattr(exporters, "propagate", True)
    hear_exporters()
    stand.exporting._secrets = hidden_headers({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cr3t-key"})

    def fails(_spans: object) -> SpanExportResult:
        for level, message, arguments in lines:
            logging.getLogger("opentelemetry.exporter.otlp").log(level, message, *arguments)
        return SpanExportResult.FAILURE

    monkeypatch.setattr(stand.collector, "export", fails)
    stand.make(2)
    stand.provider.force_flush()
    known = f": {cause}" if cause else ""
    assert caplog.messages == [f"2 spans of this process are lost so far: they could not be exported{known}"]
    assert caplog.records[0].fields.get("error", "") == cause  # type: ignore[attr-defined]


def test_what_others_export_is_logged_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporters = logging.getLogger("opentelemetry.exporter")
    monkeypatch.setattr(exporters, "handlers", [])
    monkeypatch.setattr(exporters, "propagate", True)
    hear_exporters()
    theirs = logging.getLogger("opentelemetry.exporter.otlp.metrics")
    theirs.warning(AGAIN, "x", "metrics", 1.0)
    theirs.error(ENOUGH, "metrics")
    assert caplog.messages == [ENOUGH % "metrics"]


@pytest.mark.threads
def test_two_shards_in_one_process_each_hear_of_their_own_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[str, Traces] = {}
    known: list[TracerProvider] = []
    collectors: list[Collector] = []

    def collector(_environment: object) -> list[SpanExporter]:
        collectors.append(Collector())
        return [collectors[-1]]

    monkeypatch.setattr("stepwell.metrics.traces._opened", opened)
    monkeypatch.setattr("stepwell.metrics.traces.has_provider", lambda: bool(known))
    monkeypatch.setattr(trace, "set_tracer_provider", known.append)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: known[0])
    monkeypatch.setattr("stepwell.metrics.providers.exporters_of", collector)
    lost: list[str] = []
    traces_of(TraceSetup("a", "a/0"), lambda why, _: lost.append(f"a/0 {why}"))
    traces_of(TraceSetup("b", "b/0"), lambda why, _: lost.append(f"b/0 {why}"))
    assert traces_of(TraceSetup("a", "a/0"), lambda why, _: lost.append(f"again {why}")) is opened["a/0"]
    assert len(known) == 1, "what steps instrument goes the way of the first"
    for each, traces in zip(collectors, opened.values(), strict=True):
        each.away = True
        traces.provider.get_tracer("test").start_span("s").end()
        traces.provider.force_flush()
    assert lost == ["again export_failed", "b/0 export_failed"]
    assert [each.provider.resource.attributes["service.instance.id"] for each in opened.values()] == ["a/0", "b/0"]
    for traces in opened.values():
        traces.provider.shutdown()


@pytest.mark.threads
def test_what_is_left_when_the_process_ends_is_lost_once(stand: Stand) -> None:
    stand.make(3)
    stand.exporting.give_up()
    stand.collector.away = True
    stand.provider.force_flush()  # it comes back after all
    assert stand.lost == {"shutdown": 3}


@pytest.mark.threads
def test_a_collector_that_hangs_at_the_end_loses_what_is_left(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepwell.metrics.traces.FLUSH_SECONDS", 0.0)
    hangs = threading.Event()
    monkeypatch.setattr(stand.collector, "export", lambda _: hangs.wait(60))
    traces = Traces(stand.provider, SETUP, "a collector", [stand.exporting])
    stand.make(2)
    with caplog.at_level(logging.WARNING, "stepwell.traces"):
        traces.close()
    hangs.set()
    assert stand.lost == {"shutdown": 2}
    assert "could not be exported within" in caplog.text


class _Opened:
    """Traces that were opened."""

    def __init__(self, target: str) -> None:
        self.target = target


@pytest.mark.parametrize(
    ("otel", "environment", "level", "line"),
    [
        (
            True,
            {"OTEL_TRACES_EXPORTER": "none"},
            "WARNING",
            "spans are made and go nowhere: OTEL_TRACES_EXPORTER=none is set; unset it, or leave --otel out",
        ),
        (True, {}, "INFO", "spans go to a collector on this host"),
        (
            None,
            {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
            "INFO",
            "no spans are made, though OTEL_* variables say where they go: OTEL_SDK_DISABLED=true is set",
        ),
        (
            None,
            {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
            "INFO",
            "OTEL_TRACES_EXPORTER=none is set: no spans are made",
        ),
    ],
)
def test_a_shard_says_in_one_line_where_spans_go_or_why_nowhere(
    otel: bool | None,
    environment: dict[str, str],
    level: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", *ENDPOINT):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tracing, "open_tracing", lambda _setup, _lost: _Opened(target_of()))
    with caplog.at_level(logging.INFO, "stepwell.shard"):
        traces = tracing_of(ShardSettings("rack-7/0", Limits(), 4, otel=otel), lambda _why, _spans: None)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [(level, line)]
    assert (traces is not None) is bool(otel)
