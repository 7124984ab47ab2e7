"""Somebody who scrapes a worker all the time, in both formats: no number that only grows may ever go down."""

from __future__ import annotations

import re
import threading
import urllib.request
from typing import Any

from system.support.prometheus import address_of
from system.support.stage import HANG_SECONDS, WorkerProcess
from tally.page import ACCEPTS, Series, grows_only, series_of


def page_of(worker: WorkerProcess, accept: str = ACCEPTS[0]) -> str:
    """A worker's metrics in a format."""
    request = urllib.request.Request(f"http://{address_of(worker)}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
        text: str = answer.read().decode()
    return text


class Scraper:
    """Use it in a `with` block; what it saw amiss is raised at its end."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._last: dict[str, dict[Series, float]] = {accept: {} for accept in ACCEPTS}
        self.problems: list[str] = []
        self.scrapes = 0
        self.names: set[str] = set()

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: Any) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            assert self.problems == []
            assert self.scrapes

    def _go_on(self) -> None:
        try:
            while not self._over.wait(0.02):
                self._look(ACCEPTS[self.scrapes % 2])
        except Exception as error:
            self.problems.append(f"scrape {self.scrapes}: {type(error).__name__}: {error}")

    def _look(self, accept: str) -> None:
        seen = series_of(page_of(self._worker, accept))
        before = self._last[accept]
        for series, value in before.items():
            if not grows_only(series):
                continue
            if series not in seen:
                self.problems.append(f"scrape {self.scrapes}: {series} is gone, it was {value}")
            elif seen[series] < value:
                self.problems.append(f"scrape {self.scrapes}: {series} went from {value} down to {seen[series]}")
        self._last[accept] = seen
        self.scrapes += 1


def looks_like_an_id(value: str) -> bool:
    """Whether a label's value may name a process, an execution or a key."""
    return bool(re.search(r"\d{3,}|[0-9a-f]{16,}|:", value))
