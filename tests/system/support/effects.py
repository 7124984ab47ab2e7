"""A receiver that honours `Idempotency-Key`: one effect per key, and the same answer to whoever repeats it."""

from __future__ import annotations

from typing import Any

from system.support.receiver import Answer, Receiver


class EffectReceiver(Receiver):
    """`effects` maps each key to what came with it first; `mixed` has keys of two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: dict[str, dict[str, str]] = {}
        self.requests = 0
        self.mixed: set[str] = set()
        self._numbers: dict[str, int] = {}

    def answer(self, key: str, told: dict[str, Any]) -> Answer:
        """The number of that key's effect."""
        with self._lock:
            self.requests += 1
            if self.effects.setdefault(key, told) != told:
                self.mixed.add(key)
            return Answer({"effect": self._numbers.setdefault(key, len(self._numbers))})
