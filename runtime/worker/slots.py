"""The place of one shard in its worker, which processes fill one after the other, and what the present one says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stepwell.core.restarts import Death, Shard
from stepwell.worker import control as c
from stepwell.worker.health import NO_PARTITION, silence
from stepwell.worker.spawn import Handle

__all__ = ["Cause", "Slot", "alive", "ready"]

FRESH_SECONDS: Final = 3.0
"""What a shard has said within so many seconds is about now: it says something every second."""
# What each state is called in metrics and probes.
SHOWN: Final = {
    "starting": "starting",
    "running": "running",
    "ending": "ending",
    "examined": "restarting",
    "waiting": "restarting",
    "ended": "ended",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a process ended: a `cause` of the metric on restarts, and a sentence."""

    kind: str
    text: str


@dataclass(slots=True)
class Slot:
    """One shard's place.

    Attributes:
        name: the shard's id.
        state: starting, running, ending, examined (dead, its black box is being read), waiting (for a restart), ended.
        handle: the process, if there is one.
        life: how many processes there were.
        memory: its deaths.
        due: when it is started (waiting), or no longer waits for what the examination finds (examined).
        kill_at: when it must have ended.
        kill_cause: why the parent has killed it.
        heard_at: when it last said something.
        hung_at: where in the code its scheduler was held when it was killed for that, if it is known.
        host_info: what its leases say of it.
        left: how many steps its drain has cut short; None until it said so.
        slow: people were told that its start takes long.
    """

    index: int
    name: str
    state: str = "waiting"
    handle: Handle | None = None
    life: int = 0
    memory: Shard = field(default_factory=Shard)
    due: float | None = None
    kill_at: float | None = None
    kill_cause: Cause | None = None
    heard_at: float = 0.0
    hung_at: str = ""
    started_at: float | None = None
    host_info: str = ""
    pulse: c.Pulse | None = None
    loaded: c.Loaded | None = None
    failed: c.Failed | None = None
    left: int | None = None
    cause: Cause | None = None
    death: Death | None = None
    slow: bool = False

    @property
    def shown(self) -> str:
        """Its state for people."""
        return SHOWN[self.state]

    @property
    def standing_by(self) -> bool:
        """Whether others hold all partitions, as far as is known."""
        return self.pulse is not None and self.pulse.standing_by

    def begin(self, handle: Handle, now: float) -> None:
        """A new process fills the place."""
        self.handle, self.state, self.heard_at = handle, "starting", now
        self.due = self.kill_at = self.started_at = None
        self.host_info = self.hung_at = ""
        self.pulse = self.failed = self.left = self.kill_cause = self.cause = self.death = None
        self.slow = False

    def held_at(self, now: float) -> str:
        """Where in the code its scheduler is held, as "at FILE:LINE in NAME"; empty if it has not just said so."""
        fresh = self.pulse is not None and now - self.heard_at < FRESH_SECONDS
        return self.pulse.held_at if self.pulse is not None and fresh else ""

    def end(self, how: str, now: float, committed: bool) -> Cause:
        """The process has ended, as `how` says, or could not even begin."""
        if self.started_at is None and self.handle is not None:
            how += " while it started"
        self.handle = self.kill_at = None
        if self.kill_cause is not None:
            cause = self.kill_cause
        elif self.failed is not None:
            cause = Cause("failed", self.failed.reason)
        else:
            cause = Cause("killed" if how.startswith("killed") else "exit", how)
        lived = 0.0 if self.started_at is None else now - self.started_at
        self.cause = cause
        self.death = Death(cause.text, lived, committed)
        return cause


def alive(slots: Sequence[Slot], now: float) -> str:
    """What is wrong with a shard's lease thread; empty if nothing is."""
    for slot in slots:
        pulse = slot.pulse
        if pulse is not None and slot.state == "running":
            problem = silence(now - slot.heard_at + pulse.silent)
            if problem:
                return f"shard {slot.name}: {problem}"
    return ""


def ready(slots: Sequence[Slot]) -> str:
    """Why a worker is not ready for work; empty if it is: all shards run, and one at least owns partitions."""
    pulses = []
    for slot in slots:
        if slot.state != "running":
            return f"shard {slot.name} is {slot.shown}"
        if slot.pulse is not None:
            pulses.append((slot.name, slot.pulse))
    for name, pulse in pulses:
        if pulse.problem:
            return f"shard {name}: {pulse.problem}"
    return "" if any(pulse.ready for _, pulse in pulses) else NO_PARTITION
