"""The trace that the calling code runs in, as headers: of OpenTelemetry where the process uses it, else the attempt's.

OpenTelemetry is asked only where something else has loaded it: where nothing has, no span can be active.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar

from stepwell.core.tracing import bounded_state, read_traceparent
from stepwell.flow.context import running_step

__all__ = ["adopt", "outgoing_headers", "parent_of_start"]

_outer: ContextVar[tuple[str, str]] = ContextVar("stepwell_outer_span", default=("", ""))


def outgoing_headers() -> Mapping[str, str]:
    """What a request tells its receiver: `traceparent`, `tracestate`, and whatever propagators add. Empty: no trace."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate, trace

        if trace.get_current_span().get_span_context().is_valid:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            return headers
    return _of_the_attempt()


def parent_of_start() -> tuple[str, str]:
    """`traceparent` and `tracestate` of the span that an execution is being started in; empty where there is none."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import trace

        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
            return parent, bounded_state(span.trace_state.to_header())
    headers = _of_the_attempt()
    return (headers["traceparent"], headers.get("tracestate", "")) if headers else _outer.get()


def adopt(environment: Mapping[str, str]) -> None:
    """Where no span is active, starts of this context belong to the span that `TRACEPARENT` and `TRACESTATE` name: so
    programs tell those that they run."""
    parent = environment.get("TRACEPARENT", "")
    if read_traceparent(parent) is not None:
        _outer.set((parent, bounded_state(environment.get("TRACESTATE", ""))))


def _of_the_attempt() -> dict[str, str]:
    context = running_step.get(None)
    if context is None or not context.traceparent:
        return {}
    headers = {"traceparent": context.traceparent}
    if context.tracestate:
        headers["tracestate"] = context.tracestate
    return headers
