"""Makes spans with OpenTelemetry's SDK. Loaded only where spans are made.

Spans get the ids that derive from their execution through the SDK's own way to do that: an `IdGenerator`. So samplers,
limits and processors see them as they see any span. They are handed on when they end; what exports them has a queue
and a thread of its own, so that nobody who runs flows waits for a collector.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, Protocol, cast

from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import Event
from stepwell.core.tracing import RANDOM, SAMPLED, ExecutionTrace, read_traceparent, trace_of
from stepwell.flow.context import StepContext
from stepwell.metrics.exporting import Exporting, Lost
from stepwell.metrics.providers import provider_of, target_of
from stepwell.metrics.saying import say
from stepwell.metrics.spans import ENDS_SPANS, SpanData, execution_name, spans_of
from stepwell.metrics.tracing import TraceSetup, has_provider

__all__ = ["PlannedIds", "Traces", "traces_of"]

FLUSH_SECONDS: Final = 5.0
SCOPE: Final = "stepwell"
NS: Final = 1_000_000
logger = logging.getLogger("stepwell.traces")


class PlannedIds(IdGenerator):
    """Gives the ids that were planned for the next span of this thread; anybody else's spans get ids as before."""

    def __init__(self, otherwise: IdGenerator) -> None:
        self._otherwise = otherwise
        self._planned = threading.local()

    def plan(self, trace_id: int, span_id: int) -> None:
        """What the next span of this thread gets; zeros: what anybody gets."""
        self._planned.ids = (trace_id, span_id)

    def generate_trace_id(self) -> int:
        """IdGenerator: of a span that has no parent."""
        planned: tuple[int, int] = getattr(self._planned, "ids", (0, 0))
        return planned[0] or self._otherwise.generate_trace_id()

    def generate_span_id(self) -> int:
        """IdGenerator."""
        planned: tuple[int, int] = getattr(self._planned, "ids", (0, 0))
        return planned[1] or self._otherwise.generate_span_id()

    def is_trace_id_random(self) -> bool:
        """IdGenerator: what derives from a seed does not count as drawn."""
        planned: tuple[int, int] = getattr(self._planned, "ids", (0, 0))
        return not planned[0] and self._otherwise.is_trace_id_random()


class _HasIds(Protocol):
    """A tracer provider as its documentation has it: any `IdGenerator` will do."""

    id_generator: IdGenerator


def _planned_ids(provider: TracerProvider) -> PlannedIds:
    """The provider's ids, planned from now on."""
    has = cast(_HasIds, provider)
    if not isinstance(has.id_generator, PlannedIds):
        has.id_generator = PlannedIds(has.id_generator)
    return has.id_generator


class Traces:
    """`actors.tracing.Tracing` with the SDK."""

    def __init__(
        self,
        provider: TracerProvider,
        setup: TraceSetup,
        target: str = "wherever the tracer provider of this process sends them",
        exports: Sequence[Exporting] = (),
    ) -> None:
        self.setup = setup
        self.target = target
        """Where they go, for people; empty: nowhere."""
        self.provider = provider
        """What makes them."""
        self._exports = exports
        self._ids = _planned_ids(provider)
        self._tracer = provider.get_tracer(SCOPE)
        self._failed = False
        self._followed: Checkpoint | None = None

    def tell(self, lost: Lost | None) -> None:
        """From now on that one is told of the spans that are lost."""
        for each in self._exports:
            each.reopen(lost)

    def follow(self, event: Event, checkpoint: Checkpoint) -> None:
        """Make the spans that ended with the event, if the execution is sampled."""
        self._followed = checkpoint
        try:
            if type(event) not in ENDS_SPANS:
                return
            belongs = trace_of(checkpoint)
            flags = self._flags(checkpoint, belongs)
            if flags & SAMPLED:
                for span in spans_of(event, checkpoint, belongs):
                    self._emit(span, belongs, flags)
        except Exception as error:
            # An observer's fault must not harm the execution that it observes.
            if not self._failed:
                self._failed = True
                told, of = "a span of execution %s could not be made; later ones may fail as well", event.execution_id
                say(logger, "PartErred", told, of, traceback=error, part="traces", execution=of, flow=event.flow)

    def trace(self, execution_id: str) -> str:
        """Id of the trace of the execution that was followed last, in hex, if it is that one and is sampled."""
        followed = self._followed
        if followed is None or followed.execution_id != execution_id or not self.flags(followed) & SAMPLED:
            return ""
        return f"{trace_of(followed).trace_id:032x}"

    def flags(self, checkpoint: Checkpoint) -> int:
        """1 where the sampler wants the execution's spans: it is asked about the execution's own span."""
        try:
            return self._flags(checkpoint, trace_of(checkpoint))
        except Exception:
            logger.debug("the sampler failed", exc_info=True)
            return 0

    def enter(self, context: StepContext) -> None:
        """Make the attempt's span the active one: what the body instruments lies under it."""
        try:
            span = read_traceparent(context.traceparent)
            if span is not None:
                contexts.attach(_active(span.trace_id, span.span_id, span.flags, context.tracestate))
        except Exception:
            logger.debug("no span could be made the active one", exc_info=True)  # the body runs all the same

    def close(self) -> None:
        """Have the last spans exported; waits a few seconds at most."""
        # On a thread: the SDK waits for a collector that hangs as long as its exporter does.
        flusher = threading.Thread(target=self.provider.force_flush, name="stepwell-traces", daemon=True)
        flusher.start()
        flusher.join(FLUSH_SECONDS)
        if flusher.is_alive():
            error = next((each.error for each in self._exports if each.error), "")
            told = "the last spans could not be exported within %g s and are lost%s"
            why = f": {error}" if error else ""
            say(logger, "SpansLost", told, FLUSH_SECONDS, why, reason="shutdown", error=error or None)
            for each in self._exports:
                each.give_up()

    def _flags(self, cp: Checkpoint, belongs: ExecutionTrace) -> int:
        result = self.provider.sampler.should_sample(
            _above(belongs),
            belongs.trace_id,
            execution_name(cp.meta.flow),
            SpanKind.CONSUMER,
            {"stepwell.execution.id": cp.execution_id, "stepwell.flow.name": cp.meta.flow},
            (),
        )
        sampled = SAMPLED if result.decision is Decision.RECORD_AND_SAMPLE else 0
        return sampled | (belongs.caller.flags & RANDOM if belongs.caller is not None else 0)

    def _emit(self, data: SpanData, belongs: ExecutionTrace, flags: int) -> None:
        if data.parent:
            above = _active(belongs.trace_id, data.parent, flags, belongs.state)
            kind = SpanKind.INTERNAL
        else:
            above, kind = _above(belongs), SpanKind.CONSUMER
        links = [Link(_ref(belongs.trace_id, span_id, flags, belongs.state)) for span_id in data.links]
        attributes = {**data.attributes, "stepwell.shard.id": self.setup.shard}
        self._ids.plan(belongs.trace_id, data.span_id)
        try:
            span = self._tracer.start_span(data.name, above, kind, attributes, links, data.start_ms * NS)
        finally:
            self._ids.plan(0, 0)
        for moment in data.moments:
            span.add_event(moment.name, moment.attributes, moment.at_ms * NS)
        if data.error is not None:
            span.set_status(Status(StatusCode.ERROR, data.error))
        span.end(data.end_ms * NS)


def _ref(trace_id: int, span_id: int, flags: int, state: str) -> SpanContext:
    known = TraceState.from_header([state]) if state else None
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags), trace_state=known)


def _active(trace_id: int, span_id: int, flags: int, state: str) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(_ref(trace_id, span_id, flags, state)))


def _above(belongs: ExecutionTrace) -> Context:
    """What the execution's span lies under: its caller's, or nothing at all, whatever is active here."""
    caller = belongs.caller
    if caller is None:
        return Context()
    span = _ref(caller.trace_id, caller.span_id, caller.flags, belongs.state)
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


_opened: dict[str, Traces] = {}


def traces_of(setup: TraceSetup, lost: Lost | None = None) -> Traces:
    """Trace with the process' own provider if it has one, else with one for each shard that the standard variables
    describe: then `lost` is told of the spans that are lost. Asked again for a shard, the same.

    Raises:
        UsageError: spans can't be exported as the variables say.
    """
    known = _opened.get(setup.shard)
    if known is not None:
        known.tell(lost)
        return known
    provider = trace.get_tracer_provider() if has_provider() else None
    if isinstance(provider, TracerProvider) and not any(provider is each.provider for each in _opened.values()):
        traces = Traces(provider, replace(setup, exports=False))
    elif not setup.exports:
        traces = Traces(TracerProvider(shutdown_on_exit=False), setup)  # what is active in bodies goes along, at least
    else:
        made, exports = provider_of(setup, lost)
        if provider is None:
            trace.set_tracer_provider(made)  # what steps instrument goes the same way
        traces = Traces(made, setup, target_of(), exports)
    _opened[setup.shard] = traces
    return traces
