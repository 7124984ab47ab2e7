"""Spans on their way out: what was lost is counted and told. Loaded only where spans are made.

The SDK's processor queues them for a thread of its own; where the queue is full it drops, so that nobody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

__all__ = ["Exporting"]

TOLD_EVERY_SECONDS: Final = 60.0
logger = logging.getLogger("stepwell.traces")


class Exporting(BatchSpanProcessor):
    """The SDK's processor, and an account of what became of the spans that it got."""

    def __init__(
        self,
        exporter: SpanExporter,
        schedule_delay_millis: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._told_at = -TOLD_EVERY_SECONDS
        self._told = 0
        self._ended = 0
        self._exported = 0
        self.refused = 0
        """Spans that could not be exported."""
        super().__init__(_Watched(exporter, self._came_back), schedule_delay_millis=schedule_delay_millis)

    @property
    def dropped(self) -> int:
        """Spans that found the queue full; right while the queue is empty, as after a flush."""
        return self._ended - self._exported - self.refused

    def on_end(self, span: ReadableSpan) -> None:
        """SpanProcessor: queue it."""
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            with self._lock:
                self._ended += 1
        super().on_end(span)

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """SpanProcessor: export what is queued; tell what was lost since that was told."""
        done = super().force_flush(timeout_millis)
        self._tell(self.dropped)
        return done

    def _came_back(self, spans: int, exported: bool) -> None:
        with self._lock:
            if exported:
                self._exported += spans
            else:
                self.refused += spans
        if not exported and self._monotonic() - self._told_at >= TOLD_EVERY_SECONDS:
            self._tell(0)

    def _tell(self, dropped: int) -> None:
        lost = self.refused + dropped
        if lost > self._told:
            self._told, self._told_at = lost, self._monotonic()
            why = f" ({dropped} of them found the queue full)" if dropped else ""
            logger.warning("%d spans of this process are lost so far: they could not be exported%s", lost, why)


class _Watched(SpanExporter):
    """Tells what became of each batch."""

    def __init__(self, exporter: SpanExporter, came_back: Callable[[int, bool], None]) -> None:
        self._exporter = exporter
        self._came_back = came_back

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """SpanExporter."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._came_back(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """SpanExporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """SpanExporter."""
        return self._exporter.force_flush(timeout_millis)
