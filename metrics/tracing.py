"""Whether and how a process traces. Knows OpenTelemetry by name only: it is loaded where spans are made."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from stepwell.core.errors import UsageError

if TYPE_CHECKING:
    from stepwell.metrics.traces import Traces

__all__ = ["TraceSetup", "has_provider", "installed", "named_but_missing", "open_tracing", "wanted"]

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"
HOW_TO_INSTALL: Final = "pip install 'stepwell[otel]'"


class TraceSetup(msgspec.Struct, frozen=True):
    """How a process traces: `shard` is whose spans they are, `worker` whose shard that is. `exports`: by the variables,
    where the process has no tracer provider of its own; else it exports nothing then."""

    worker: str
    shard: str
    exports: bool = True


def open_tracing(setup: TraceSetup) -> Traces:
    """Load OpenTelemetry and trace in this process, until its end; asked again, the same.

    Raises:
        UsageError: spans can't be exported as the variables say; the message says why.
    """
    from stepwell.metrics.traces import traces_of

    return traces_of(setup)


def installed() -> bool:
    """Whether what the extra `otel` brings is there; nothing of it is loaded."""
    try:
        return importlib.util.find_spec("opentelemetry.sdk") is not None
    except ModuleNotFoundError:
        return False


def wanted(asked: bool | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to trace: as `asked`, else if the standard variables name where spans go to, or if this process has a
    tracer provider of OpenTelemetry's SDK already (its program set one up, or `opentelemetry-instrument` did).

    Raises:
        UsageError: it was asked for, and the extra is not installed, or `OTEL_SDK_DISABLED` is set.
    """
    if asked is False:
        return False
    disabled = environment.get(DISABLED, "").strip().lower() == "true"
    if asked:
        if not installed():
            raise UsageError(f"tracing needs OpenTelemetry's SDK, which is not installed: {HOW_TO_INSTALL}")
        if disabled:
            raise UsageError(f"tracing was asked for, but {DISABLED}=true is set: unset it, or leave --otel out")
        return True
    if disabled:
        return False
    return installed() and (_has_target(environment) or has_provider())


def named_but_missing(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the variables name where spans go to, but what makes them is not installed."""
    return _has_target(environment) and not installed()


def has_provider() -> bool:
    """Whether the process has a tracer provider of the SDK."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return False
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    return isinstance(trace.get_tracer_provider(), TracerProvider)


def _has_target(environment: Mapping[str, str]) -> bool:
    exporters = environment.get(EXPORTERS, "").strip()
    if exporters:
        return exporters != "none"
    return any(environment.get(name, "").strip() for name in ENDPOINTS)
