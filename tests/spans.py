"""Spans that tests look at: a provider whose spans stay in memory, and whether they make one tree."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext

from stepwell.metrics.traces import Traces
from stepwell.metrics.tracing import TraceSetup

MS = 1_000_000


class Collected:
    """A provider, and the spans that came of it."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(resource=Resource({}), sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def traces(self, shard: str = "w/0") -> Traces:
        """Who makes the spans of a shard."""
        return Traces(self.provider, TraceSetup(shard.partition("/")[0], shard))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, *names: str) -> list[ReadableSpan]:
        """Those of these names, as they ended."""
        return [span for span in self.spans if span.name in names]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def parent_of(span: ReadableSpan) -> int:
    """Id of its parent, 0 for a root."""
    return 0 if span.parent is None else span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def told(span: ReadableSpan, name: str) -> object:
    """An attribute, without its prefix."""
    return (span.attributes or {}).get(f"stepwell.{name}")


def times_of(span: ReadableSpan) -> tuple[int, int]:
    """Begin and end in ms."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time // MS, span.end_time // MS


def check_tree(spans: Sequence[ReadableSpan], root: int = 0) -> None:
    """One trace, each span once, one root (or one child of `root`, a span elsewhere), all parents and links there, and
    nobody within the time of none."""
    ids = [id_of(span) for span in spans]
    assert len(ids) == len(set(ids)), "a span was exported twice"
    assert len({context_of(span).trace_id for span in spans}) == 1, "they are of one trace"
    assert [span.name for span in spans if parent_of(span) == root][1:] == [], "there is one root"
    known = {*ids, root}
    assert [span.name for span in spans if parent_of(span) not in known] == [], "nobody is an orphan"
    assert [span.name for span in spans if not set(links_of(span)) <= known] == [], "links lead somewhere"
    by_id = {id_of(span): span for span in spans}
    for span in spans:
        start, end = times_of(span)
        assert start <= end
        above = by_id.get(parent_of(span))
        if above is not None and not span.name.startswith("execution "):
            assert times_of(above)[0] <= start, f"{span.name} began before {above.name}"
            assert end <= times_of(above)[1], f"{span.name} ended after {above.name}"
