"""Keeps requests waiting, so that steps certainly run at the moment when their worker is killed."""

from __future__ import annotations

import threading

__all__ = ["Gate"]

PATIENCE_SECONDS = 150.0  # whoever closed the gate may have forgotten it


class Gate:
    """Open at first. While it is closed, whoever passes waits."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()
        self._lock = threading.Lock()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return self._waiting

    def close(self) -> None:
        """Let nobody pass."""
        self._opened.clear()

    def open(self) -> None:
        """Let all pass."""
        self._opened.set()

    def wait(self) -> None:
        """Pass, as soon as it is open."""
        if self._opened.is_set():
            return
        with self._lock:
            self._waiting += 1
        try:
            self._opened.wait(PATIENCE_SECONDS)
        finally:
            with self._lock:
                self._waiting -= 1
