"""The receiver of `fated`: it answers each attempt with its planned fate, and records what it was asked."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from system.support.receiver import Answer, Receiver

HELD = "held:"
"""A fate `held:GATE:FATE` is told only when its gate is released."""
STATUSES = {"busy": 503, "refused": 404, "broken": 500}
"""Fates that are told by the answer's status."""
BUSY_SECONDS = "0.15"


def plain(fate: str) -> str:
    """A fate without its gate."""
    return fate.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: which attempt came, from which process, when (ms, wall clock), and what it was told."""

    execution: str
    flow: str
    step: str
    path: str
    attempt: int
    key: str
    pid: int
    at_ms: int
    fate: str

    @property
    def name(self) -> tuple[str, str, int]:
        """Which attempt it is."""
        return self.execution, self.path, self.attempt


class FateReceiver(Receiver):
    """`plan`: by execution and path the fates of the attempts, in order."""

    def __init__(self, plan: Mapping[tuple[str, str], Sequence[str]]) -> None:
        super().__init__()
        self._plan = plan
        self._record: list[Asked] = []
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    @property
    def record(self) -> list[Asked]:
        """All that came, in order."""
        with self._lock:
            return list(self._record)

    def runs(self) -> Counter[tuple[str, str, int]]:
        """How often each attempt came: more than once where it was cut short."""
        return Counter(asked.name for asked in self.record)

    def held(self, gate: str) -> list[Asked]:
        """What came and is to be told later."""
        return [asked for asked in self.record if asked.fate.startswith(f"{HELD}{gate}:")]

    def release(self, gate: str) -> None:
        """Tell all that is held there its fate, now and from now on."""
        with self._lock:
            self._gates[gate].set()

    def receive(self, told: dict[str, Any]) -> str:
        """Record an attempt; its fate, once it may be told."""
        fates = self._plan.get((told["execution"], told["path"]), ())
        number = told["attempt"]
        fate = fates[number - 1] if number <= len(fates) else "unplanned"
        with self._lock:
            self._record.append(Asked(**told, at_ms=time.time_ns() // 1_000_000, fate=fate))
            gate = self._gates[fate.split(":")[1]] if fate.startswith(HELD) else None
        if gate is not None:
            gate.wait()
        return plain(fate)

    def answer(self, key: str, told: dict[str, Any]) -> Answer:
        """Its fate, by the status or in words."""
        assert key in {"", told["key"]}
        fate = self.receive(told)
        headers = {"Retry-After": BUSY_SECONDS} if fate == "busy" else {}
        return Answer({"fate": fate}, STATUSES.get(fate, 200), headers)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for gate in self._gates.values():
                gate.set()
        super().__exit__()
