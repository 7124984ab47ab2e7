"""What `/metrics` answers: the totals as of now, and the process' own numbers, in the format that was asked for."""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from stepwell.actors.kit.clock import monotonic
from stepwell.metrics.instruments import EXPOSITION_BYTES, EXPOSITION_SECONDS
from stepwell.metrics.negotiation import takes_gzip, wants_openmetrics
from stepwell.metrics.rendering import Page, samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

__all__ = ["Answer", "Scrapes"]

GZIP_LEVEL: Final = 1
"""A page repeats itself, so that the lowest level does most of the work; higher ones cost more than they save."""


class Answer(NamedTuple):
    """A page: what it is, how it is encoded (empty: not at all), and its bytes."""

    content_type: str
    encoding: str
    body: bytes


class Scrapes:
    """Pages of totals. `refresh` is called before each, to set what is only known when it is asked for; `own` is one of
    the sheets, which is told what the pages cost."""

    def __init__(self, totals: Totals, own: Sheet, refresh: Callable[[], None] = lambda: None) -> None:
        self._totals = totals
        self._seconds = own.level(EXPOSITION_SECONDS)
        self._bytes = own.level(EXPOSITION_BYTES)
        self._refresh = refresh
        self._lock = threading.Lock()
        self._pages = {openmetrics: Page(openmetrics) for openmetrics in (False, True)}
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def answer(self, accept: str = "", accept_encoding: str = "") -> Answer:
        """The page as these headers of a request want it."""
        began = monotonic()
        answer = self._made(accept, accept_encoding)
        self._seconds.set(monotonic() - began)
        self._bytes.set(len(answer.body))
        return answer

    def _made(self, accept: str, accept_encoding: str) -> Answer:
        openmetrics = wants_openmetrics(accept)
        page = self._pages[openmetrics]
        with self._lock:
            self._refresh()
            body = page.render(self._totals.take(marks=openmetrics)).encode()
        own = generate_openmetrics if openmetrics else generate_latest
        body += own(self._process)
        if takes_gzip(accept_encoding):
            return Answer(page.content_type, "gzip", gzip.compress(body, GZIP_LEVEL, mtime=0))
        return Answer(page.content_type, "", body)

    def sum(self, name: str, **labels: str) -> float:
        """Of all samples that have these labels, as of now; 0 where there is none."""
        self._refresh()
        return math.fsum(
            value
            for sample, of, value in samples_of(self._totals.take())
            if sample == name and labels.items() <= of.items()
        )
