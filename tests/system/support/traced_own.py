"""The flows of `traced`, in a program that has set up OpenTelemetry by itself."""

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from system.support.traced import traced

__all__ = ["traced"]

url = os.environ["STEPWELL_TEST_SHOP"].replace("/pay", "/v1/traces")
provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
trace.set_tracer_provider(provider)
