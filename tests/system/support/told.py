"""The receiver of `asked`: each attempt tells it what it is, before it does what it is to do."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from system.support.receiver import Answer, Receiver


class ToldReceiver(Receiver):
    """Who is to `hold` waits for `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []
        self.release = threading.Event()

    def answer(self, key: str, told: dict[str, Any]) -> Answer:
        """Write it down."""
        with self._lock:
            self.told.append(told)
        if told["does"] == "hold":
            self.release.wait()
        return Answer({})

    @property
    def attempts(self) -> Counter[tuple[str, ...]]:
        """How many began, by flow and step."""
        return Counter((each["flow"], each["step"]) for each in self.told)

    def did(self, *words: str) -> int:
        """How many were to do one of these."""
        return sum(each["does"] in words for each in self.told)
