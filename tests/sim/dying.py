"""How simulated shards die, and what their black boxes say then."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.actors.blackbox import BlackBox
from stepwell.actors.boxlayout import ATTEMPT, ATTEMPT_SIZE, ATTEMPTS_AT, BY_LOOP
from stepwell.actors.boxreport import BoxReport, parse_box

SLOTS = 64


class ShardDied(BaseException):
    """The simulated process is gone: whoever runs the world throws the shard away."""


class PartFailed(Exception):
    """A part of a shard fails by a bug, which is there on purpose."""

    def __init__(self, part: str) -> None:
        super().__init__(f"the {part} has a bug, on purpose")
        self.part = part


class SimBox(BlackBox):
    """A black box in memory. At the end of a turn it asks whether the process has `died` in it."""

    def __init__(self, name: str, died: Callable[[], bool]) -> None:
        self.content = bytearray(ATTEMPTS_AT + SLOTS * ATTEMPT_SIZE)
        super().__init__(self.content, name.encode()[:16].ljust(16, b"-"), SLOTS)
        self._died = died

    def idle(self) -> None:
        if self._died():
            raise ShardDied
        super().idle()

    def works(self, slot: int) -> None:
        """The body is resumed now. It stays so if the shard dies in it."""
        self._work(slot, BY_LOOP)

    def rests(self, slot: int) -> None:
        """The body waits."""
        self._work(slot, 0)

    def _work(self, slot: int, value: int) -> None:
        if slot >= 0:
            self.content[ATTEMPTS_AT + slot * ATTEMPT_SIZE + ATTEMPT.size - 2] = value

    def report(self, read_at: float) -> BoxReport:
        """What its parent reads."""
        self.beat(read_at)
        report = parse_box(bytes(self.content), read_at)
        assert report is not None
        return report
