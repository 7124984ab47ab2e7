"""Spans on their way out: what was lost is counted and told. Loaded only where spans are made.

The SDK's processor queues them for a thread of its own; where the queue is full it drops, so that nobody waits.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from stepwell.metrics.hearing import cause_of, hidden_headers, listening
from stepwell.metrics.saying import say

__all__ = ["Exporting", "Lost"]

Lost: TypeAlias = Callable[[str, int], None]
"""Is told why so many spans were lost: `queue_full`, `export_failed`, `shutdown`. On any thread."""

TOLD_EVERY_SECONDS: Final = 60.0
CAUSE_CHARS_MAX: Final = 300
QUEUE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
QUEUE_MAX: Final = 2048
logger = logging.getLogger("stepwell.traces")


def _nobody(_why: str, _spans: int) -> None:
    """Where nobody wants to know."""


class Exporting(BatchSpanProcessor):
    """The SDK's processor, and an account of what became of the spans that it got.

    It refuses spans itself before the SDK's queue is full: that drops the oldest ones, and logs a line for each.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        schedule_delay_millis: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        lost: Lost | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self.lost: Lost = lost or _nobody
        """Who is told."""
        self._room = _queue_size(environment)
        self._told_at = -TOLD_EVERY_SECONDS
        self._told = 0
        self._held = 0
        self._over = False
        self.refused = 0
        """Spans that could not be exported."""
        self.dropped = 0
        """Spans that found the queue full."""
        self.error = ""
        """Why the last batch could not be exported, or the one under way can't so far; empty where it could."""
        self._secrets = hidden_headers(environment)
        watched = _Watched(exporter, self._came_back, self._hears)
        super().__init__(watched, schedule_delay_millis=schedule_delay_millis)

    def on_end(self, span: ReadableSpan) -> None:
        """SpanProcessor: queue it."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._lock:
            fits = self._held < self._room
            if fits:
                self._held += 1
            else:
                self.dropped += 1
        if fits:
            super().on_end(span)
        else:
            self.lost("queue_full", 1)
            self._tell_now_and_then()

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """SpanProcessor: export what is queued; tell what was lost since that was told."""
        done = super().force_flush(timeout_millis)
        self._tell()
        return done

    def give_up(self) -> None:
        """The process ends: what is queued, or on its way, is lost."""
        with self._lock:
            left, self._held, self._over = self._held, 0, True
        if left:
            self.lost("shutdown", left)

    def reopen(self, lost: Lost | None) -> None:
        """It goes on after all: from now on that one is told."""
        with self._lock:
            self.lost, self._over = lost or _nobody, False

    def _hears(self, said: str) -> None:
        self.error = self._secrets.hide(said)[:CAUSE_CHARS_MAX]  # cut last: half a key is one, too

    def _came_back(self, spans: int, exported: bool) -> None:
        with self._lock:
            if self._over:
                return
            self._held = max(0, self._held - spans)
            if exported:
                self.error = ""
            else:
                self.refused += spans
        if not exported:
            self.lost("export_failed", spans)
            self._tell_now_and_then()

    def _tell_now_and_then(self) -> None:
        if self._monotonic() - self._told_at >= TOLD_EVERY_SECONDS:
            self._tell()

    def _tell(self) -> None:
        lost = self.refused + self.dropped
        if lost > self._told:
            self._told, self._told_at = lost, self._monotonic()
            why = f" ({self.dropped} of them found the queue full)" if self.dropped else ""
            why += f": {self.error}" if self.error else ""
            told = "%d spans of this process are lost so far: they could not be exported%s"
            say(logger, "SpansLost", told, lost, why, spans=lost, error=self.error or None)


def _queue_size(environment: Mapping[str, str]) -> int:
    """As the SDK reads it."""
    try:
        return int(environment.get(QUEUE, QUEUE_MAX))
    except ValueError:
        return QUEUE_MAX


class _Watched(SpanExporter):
    """Tells what became of each batch, and what the exporter says of it."""

    def __init__(
        self, exporter: SpanExporter, came_back: Callable[[int, bool], None], hears: Callable[[str], None]
    ) -> None:
        self._exporter = exporter
        self._came_back = came_back
        self._hears = hears

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """SpanExporter."""
        result = SpanExportResult.FAILURE
        tries = 0

        def hears(said: str, last: bool) -> None:
            # The last word on a batch that was tried again is only that it was tried often enough.
            nonlocal tries
            if not (last and tries):
                self._hears(said)
            tries += 1

        try:
            with listening(hears):
                result = self._exporter.export(spans)
        except Exception as error:
            self._hears(cause_of(error))
            raise
        finally:
            self._came_back(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """SpanExporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """SpanExporter."""
        return self._exporter.force_flush(timeout_millis)
