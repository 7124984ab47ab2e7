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
    from stepwell.metrics.exporting import Lost
    from stepwell.metrics.traces import Traces

__all__ = [
    "TraceSetup",
    "exports_nothing",
    "has_provider",
    "installed",
    "open_tracing",
    "wanted",
    "why_not",
    "why_nowhere",
]

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


def open_tracing(setup: TraceSetup, lost: Lost | None = None) -> Traces:
    """Load OpenTelemetry and trace in this process, until its end; asked again, the same. `lost` is told how many spans
    were lost, and why, where this process exports them by itself.

    Raises:
        UsageError: spans can't be exported as the variables say; the message says why.
    """
    from stepwell.metrics.traces import traces_of

    return traces_of(setup, lost)


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
    if asked:
        if not installed():
            raise UsageError(f"tracing needs OpenTelemetry's SDK, which is not installed: {HOW_TO_INSTALL}")
        if _disabled(environment):
            raise UsageError(f"tracing was asked for, but {DISABLED}=true is set: unset it, or leave --otel out")
        return True
    if _disabled(environment):
        return False
    return installed() and (_has_target(environment) or has_provider())


def why_not(environment: Mapping[str, str] = os.environ) -> str:
    """Why no spans are made though the variables name where they go to; empty where they name nothing, or they are."""
    if not _named(environment):
        return ""
    if _disabled(environment):
        return f"{DISABLED}={environment[DISABLED].strip()} is set"
    if not installed():
        return f"OpenTelemetry's SDK is not installed: {HOW_TO_INSTALL}"
    return why_nowhere(environment)


def why_nowhere(environment: Mapping[str, str] = os.environ) -> str:
    """Why spans that are made go nowhere; empty where they go somewhere."""
    return f"{EXPORTERS}={environment[EXPORTERS].strip()} is set" if exports_nothing(environment) else ""


def exports_nothing(environment: Mapping[str, str]) -> bool:
    """Whether the variables say that no spans shall be exported."""
    names = [name.strip().lower() for name in environment.get(EXPORTERS, "").split(",")]
    return any(names) and all(name in ("", "none") for name in names)


def has_provider() -> bool:
    """Whether the process has a tracer provider of the SDK."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return False
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    return isinstance(trace.get_tracer_provider(), TracerProvider)


def _disabled(environment: Mapping[str, str]) -> bool:
    return environment.get(DISABLED, "").strip().lower() == "true"


def _has_target(environment: Mapping[str, str]) -> bool:
    return _named(environment) and not exports_nothing(environment)


def _named(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in (EXPORTERS, *ENDPOINTS))
