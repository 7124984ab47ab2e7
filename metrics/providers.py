"""A tracer provider of OpenTelemetry's SDK, set up by the standard variables. Loaded only where spans are made.

Exporters are found by their entry points, as the SDK's own configuration finds them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from stepwell.core.errors import UsageError
from stepwell.core.messages import message_of
from stepwell.core.redact import redact, redact_url
from stepwell.metrics.exporting import Exporting, Lost
from stepwell.metrics.hearing import hear_exporters
from stepwell.metrics.tracing import ENDPOINTS, EXPORTERS, TraceSetup, exports_nothing

__all__ = ["exporters_of", "provider_of", "target_of"]

DELAY: Final = "OTEL_BSP_SCHEDULE_DELAY"
DELAY_MS: Final = 1000.0  # a shard that is killed takes along what it has not exported yet
SERVICE: Final = "stepwell"
GROUP: Final = "opentelemetry_traces_exporter"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def provider_of(
    setup: TraceSetup, lost: Lost | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[TracerProvider, list[Exporting]]:
    """A provider whose spans go where the variables say (to a collector on this host, if they say nothing), and what
    exports them. `lost` is told of those that are lost.

    Raises:
        UsageError: an exporter is not installed, or can't be made, or the address of the collector is none.
    """
    resource = Resource.create({"stepwell.worker.id": setup.worker, "service.instance.id": setup.shard})
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource)
    delay = None if environment.get(DELAY) else DELAY_MS
    exports = [Exporting(each, delay, lost=lost, environment=environment) for each in exporters_of(environment)]
    for each in exports:
        provider.add_span_processor(each)
    hear_exporters()
    return provider, exports


def target_of(environment: Mapping[str, str] = os.environ) -> str:
    """Where they go, for people; empty: nowhere."""
    if exports_nothing(environment):
        return ""
    named = environment.get(EXPORTERS) or "otlp"
    if "otlp" not in named:
        return named
    address = next((environment[name] for name in reversed(ENDPOINTS) if environment.get(name)), "")
    return redact_url(address) if address else "a collector on this host"


def exporters_of(environment: Mapping[str, str] = os.environ) -> list[SpanExporter]:
    """What `OTEL_TRACES_EXPORTER` names, `otlp` by default."""
    names = [name.strip() for name in (environment.get(EXPORTERS) or "otlp").split(",")]
    return [_exporter(name, environment) for name in names if name and name.lower() != "none"]


def _exporter(name: str, environment: Mapping[str, str]) -> SpanExporter:
    if name == "otlp":
        protocol = next((environment[each] for each in PROTOCOLS if environment.get(each)), "http/protobuf")
        if protocol not in OTLP:
            raise UsageError(
                f"no spans can be sent by the protocol {protocol!r}: {PROTOCOLS[1]} may be {', '.join(OTLP)}"
            )
        _check_endpoints(environment)
        name = OTLP[protocol]
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        package = f"opentelemetry-exporter-{name.replace('_', '-')}"
        raise UsageError(f"spans are to be exported by {name!r}, which is not installed ({package}, perhaps)")
    try:
        made = found.load()()
    except Exception as error:
        raise UsageError(f"spans can't be exported by {name!r}: {redact(message_of(error))}") from error
    assert isinstance(made, SpanExporter), f"{found.value} is no exporter of spans"
    return made


def _check_endpoints(environment: Mapping[str, str]) -> None:
    """What is no address exporters name in pieces, which may be those of a password."""
    for variable in ENDPOINTS:
        address = environment.get(variable, "").strip()
        if not _is_address(address):
            raise UsageError(
                f"{variable} is no usable address: {redact_url(address)}; look at its host and port (a password with"
                " : / ? # or @ in it must be percent-encoded)"
            )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (parts.port or 0) >= 0 and text.count("@") == parts.netloc.count("@") <= 1
    except ValueError:
        return False
