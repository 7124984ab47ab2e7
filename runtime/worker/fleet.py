"""The shards of a worker: which live, what each said last, what happens when one dies. It never waits.

The parent's loop tells it what has happened; what it decides it does through the handles of the processes and through
its `Aide`. All of it is for the thread of that loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from typing import Final, Protocol

from stepwell.actors.verdict import HANG_SECONDS
from stepwell.core.restarts import RestartRules
from stepwell.metrics.instruments import COMMITS
from stepwell.metrics.saying import Kind, say
from stepwell.metrics.totals import Totals
from stepwell.metrics.worker import WorkerMetrics
from stepwell.store.leases import TTL_MS
from stepwell.worker import control as c
from stepwell.worker.slots import Cause, Slot
from stepwell.worker.spawn import Handle

__all__ = ["Aide", "Fleet"]

MUTE_SECONDS_MAX: Final = 60.0
"""A shard that says nothing for so long is killed; it speaks twice a second."""
ENDING_SECONDS: Final = 25.0
"""What a shard that ends has after its grace: it flushes, stops its threads, gives leases back."""
SLOW_SECONDS: Final = 30.0
"""People are told of a start that takes longer."""
FROZEN_SECONDS: Final = 5.0
"""The parent itself was held up if it did not look for so long."""
EXAMINING_SECONDS: Final = 2.0
"""For how long a restart waits to hear what killed the shard."""
LAST_EXAMINING_SECONDS: Final = TTL_MS / 1000
"""For how long the end of the worker does: nobody writes down afterwards who was at work, and the leases lapse."""

logger = logging.getLogger("stepwell.worker")


class Aide(Protocol):
    """What the fleet can't do by itself. Nothing of it waits."""

    def spawn(self, slot: Slot) -> Handle:
        """Start a process for a shard, and give it its first orders."""
        ...

    def busy_seconds(self, slot: Slot) -> float:
        """For how long the shard's scheduler has been at one turn, by its black box; 0 where that is not known."""
        ...

    def examine(self, slot: Slot) -> None:
        """Read a dead shard's black box and free its leases, then call `Fleet.examined`."""
        ...

    def in_trouble(self) -> None:
        """A shard can't reach Redis."""
        ...


class Fleet:
    """Starts, watches, restarts and ends shards."""

    def __init__(
        self,
        slots: tuple[Slot, ...],
        aide: Aide,
        totals: Totals,
        metrics: WorkerMetrics,
        monotonic: Callable[[], float],
        rules: RestartRules | None = None,
    ) -> None:
        self.slots = slots
        self._aide = aide
        self._totals = totals
        self._metrics = metrics
        self._monotonic = monotonic
        self._rules = rules or RestartRules()
        self._ticked = monotonic()
        self.draining = False
        self.failure = ""
        """Why the worker can't go on."""
        self.refusal: c.Failed | None = None
        """Why a shard would not start, as long as they never all had."""
        self.had_started = False
        """Whether all shards ran at the same time once."""
        self.cut_short = 0
        """Steps that a drain has cut short."""
        metrics.watch(
            lambda state: sum(slot.shown == state for slot in slots),
            lambda: [(slot.index, handle.pid) for slot in slots if (handle := slot.handle) is not None],
        )

    @property
    def over(self) -> bool:
        """Whether all have ended and none comes back."""
        return all(slot.state == "ended" for slot in self.slots)

    @property
    def had_loaded(self) -> bool:
        """Whether a shard could load the flows."""
        return any(slot.loaded is not None for slot in self.slots)

    def living(self) -> Iterator[tuple[Slot, Handle]]:
        """Places with a process."""
        for slot in self.slots:
            if slot.handle is not None:
                yield slot, slot.handle

    def start(self) -> None:
        """Start all."""
        for slot in self.slots:
            self._spawn(slot)

    def hear(self, slot: Slot) -> None:
        """Take in what a shard has said."""
        if slot.handle is None:
            return
        try:
            for message in slot.handle.receive():
                slot.heard_at = self._monotonic()
                self._heard(slot, message)
        except ValueError as error:
            self._kill(slot, Cause("nonsense", f"it said what no shard says ({error})"))

    def look(self, slot: Slot) -> None:
        """See whether a process has ended."""
        if slot.handle is not None and slot.handle.ended():
            self.hear(slot)
            self._died(slot, slot.handle)

    def examined(self, index: int, life: int, named: bool) -> None:
        """A dead shard's black box was read, its leases are free. `named`: it told what has killed the shard."""
        for other, handle in self.living():
            if other.state == "running":
                handle.send(c.Hurry())
        slot = self.slots[index]
        if slot.state == "examined" and slot.life == life:
            self._decide(slot, named)

    def tick(self) -> None:
        """Do what is due."""
        now = self._monotonic()
        if now - self._ticked > FROZEN_SECONDS:  # who did not listen has nothing to say about silence
            for slot in self.slots:
                slot.heard_at = now
        self._ticked = now
        for slot in self.slots:
            if slot.handle is not None:
                self._watch(slot, now)
            elif slot.due is not None and now >= slot.due:
                if slot.state == "examined":
                    self._decide(slot, named=False)
                elif slot.state == "waiting":
                    self._metrics.restarted("" if slot.cause is None else slot.cause.kind)
                    self._spawn(slot)

    def drain(self, grace: float) -> None:
        """Let all of them end, running steps within `grace` seconds; none is started any more."""
        self.draining = True
        now = self._monotonic()
        for slot in self.slots:
            if slot.state == "waiting":
                slot.state, slot.due = "ended", None
            elif slot.state == "examined":
                slot.due = now + LAST_EXAMINING_SECONDS
            elif slot.handle is not None and slot.state != "ending":
                slot.state = "ending"
                slot.kill_at = now + grace + ENDING_SECONDS
                slot.handle.send(c.Drain(grace))

    def kill(self) -> None:
        """SIGKILL them all, and clear them away."""
        for slot, handle in list(self.living()):
            handle.kill()
            handle.bury()
            self._totals.end(slot.index)
            slot.handle, slot.state = None, "ended"

    def replace(self, cause: Cause) -> None:
        """Kill them all; others follow."""
        for slot, _ in self.living():
            self._kill(slot, cause)

    @property
    def due(self) -> float | None:
        """When `tick` has something to do at the latest; None: not before somebody says or does something."""
        return min((slot.due for slot in self.slots if slot.due is not None), default=None)

    def _spawn(self, slot: Slot) -> None:
        slot.life += 1
        try:
            handle = self._aide.spawn(slot)
        except OSError as error:  # no memory, too many processes
            cause = slot.end(f"it can't be started: {error.strerror}", self._monotonic(), committed=False)
            self._report(slot, cause, None)
            self._decide(slot, named=False)
            return
        slot.begin(handle, self._monotonic())

    def _heard(self, slot: Slot, message: c.ToParent) -> None:
        match message:
            case c.Hello():
                slot.host_info = message.host_info
            case c.Loaded():
                slot.loaded = message
            case c.Started():
                self._started(slot, message)
            case c.Pulse():
                slot.pulse = message
            case c.Trouble():
                self._aide.in_trouble()
            case c.Failed():
                self._failed(slot, message)
            case c.Drained():
                slot.left = message.left

    def _started(self, slot: Slot, message: c.Started) -> None:
        slot.started_at = self._monotonic()
        slot.pulse = message.pulse
        if slot.state == "starting":  # and not told to end meanwhile
            slot.state = "running"
        pid = 0 if slot.handle is None else slot.handle.pid
        say(logger, "ShardStarted", "shard %s runs (process %d)", slot.name, pid, shard=slot.name, pid=pid)
        self.had_started = self.had_started or all(each.state == "running" for each in self.slots)

    def _failed(self, slot: Slot, message: c.Failed) -> None:
        slot.failed = message
        if slot.started_at is None and not self.had_started:
            self.refusal = self.refusal or message
        slot.state = "ending"
        slot.kill_at = self._monotonic() + ENDING_SECONDS

    def _watch(self, slot: Slot, now: float) -> None:
        if slot.kill_cause is not None:
            return
        if slot.kill_at is not None and now >= slot.kill_at:
            self._kill(slot, Cause("stuck", "it did not end in time"))
        elif slot.state == "running" and self._aide.busy_seconds(slot) > HANG_SECONDS:
            slot.hung_at = slot.held_at(now)
            at = f" {slot.hung_at}" if slot.hung_at else ""
            self._kill(slot, Cause("hang", f"one turn of its scheduler took over {HANG_SECONDS:g} s{at}"))
        elif slot.state == "running" and now - slot.heard_at > MUTE_SECONDS_MAX:
            self._kill(slot, Cause("silent", f"nothing was heard of it for {MUTE_SECONDS_MAX:g} s"))
        elif slot.state == "starting" and not slot.slow and now - slot.heard_at > SLOW_SECONDS:
            slot.slow = True
            told = (
                "shard %s has said nothing for %g s of its start: a module with flows takes long to load, or Redis to"
                " answer"
            )
            say(logger, "ShardSlow", told, slot.name, SLOW_SECONDS, shard=slot.name)

    def _kill(self, slot: Slot, cause: Cause) -> None:
        if slot.handle is None or slot.kill_cause is not None:
            return
        self._tell_of(slot, "ShardKilled", "shard %s is killed: %s", cause, slot.handle.pid)
        slot.kill_cause = cause
        slot.handle.kill()

    def _died(self, slot: Slot, handle: Handle) -> None:
        self._metrics.ended(slot.index, handle.pid)
        commits = self._totals.counted(slot.index, COMMITS, "ok")
        # Without a sheet (its file could not be made) nobody knows: what ran may have committed.
        committed = slot.started_at is not None if commits is None else commits > 0
        cause = slot.end(handle.bury(), self._monotonic(), committed)
        self._totals.end(slot.index)
        if self.draining and slot.left is not None:
            self.cut_short += slot.left
            slot.state = "ended"
            return
        self._report(slot, cause, handle.pid)
        if self.draining:
            self.failure = self.failure or f"shard {slot.name} died before it had ended: {cause.text}"
        patience = LAST_EXAMINING_SECONDS if self.draining else EXAMINING_SECONDS
        slot.state, slot.due = "examined", self._monotonic() + patience
        self._aide.examine(slot)

    def _report(self, slot: Slot, cause: Cause, pid: int | None) -> None:
        if self.refusal is None or self.had_started:  # who waits for the start is told
            self._tell_of(slot, "ShardDied", "shard %s died: %s", cause, pid)

    def _tell_of(self, slot: Slot, what: Kind, told: str, cause: Cause, pid: int | None) -> None:
        name, text = slot.name, cause.text
        say(logger, what, told, name, text, shard=name, pid=pid, cause=cause.kind, detail=text)

    def _decide(self, slot: Slot, named: bool) -> None:
        """Start a dead shard again, later or never."""
        assert slot.death is not None, "it has died"
        slot.memory = self._rules.after(slot.memory, changed(slot.death, named=named))
        slot.due = None
        if self.draining:
            slot.state = "ended"
            return
        verdict = self._rules.verdict(slot.memory)
        if verdict:
            slot.state = "ended"
            self.failure = self.failure or f"shard {slot.name} {verdict}"
            return
        pause = self._rules.pause(slot.memory)
        when = f" in {pause:g} s" if pause else ""
        cause = None if slot.cause is None else slot.cause.kind
        told = "shard %s is started again%s"
        say(logger, "ShardRestarting", told, slot.name, when, shard=slot.name, cause=cause, delay_s=pause)
        slot.state, slot.due = "waiting", self._monotonic() + pause
