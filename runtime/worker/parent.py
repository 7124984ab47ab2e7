"""The parent process of a worker: it spawns the shards, watches and restarts them, and speaks for them to the outside.

It runs no flow and loads no user's code. One thread, the main one, does all that concerns processes: the kernel kills
a shard when the thread that made it ends. What may take long (Redis, the embedded server) is done beside it.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable
from types import FrameType
from typing import Final, Self

from stepwell.core import errors
from stepwell.core.errors import StepwellError, StoreError, UsageError
from stepwell.metrics.exposition import Exposition
from stepwell.metrics.instruments import closed_series
from stepwell.metrics.logs import say_who, tick_logging
from stepwell.metrics.saying import say
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals
from stepwell.metrics.worker import WorkerMetrics
from stepwell.worker import control as c
from stepwell.worker import slots
from stepwell.worker.aide import ParentsAide
from stepwell.worker.config import WorkerConfig
from stepwell.worker.fleet import Fleet
from stepwell.worker.loop import Loop
from stepwell.worker.naming import shard_id
from stepwell.worker.opening import Station, connector, open_store
from stepwell.worker.process import DRAINING_SIGNALS, kill_group, set_title
from stepwell.worker.slots import Slot

__all__ = ["Parent"]

TICK_SECONDS: Final = 0.5
OWN_PLACE: Final = -1
"""Of the parent's own numbers among those of the shards."""
STALE_SECONDS_MAX: Final = 10.0
logger = logging.getLogger("stepwell.worker")


class Parent:
    """One worker of several processes. `start`, then `wait`, both on the main thread.

    Args:
        flows: files and modules that the shards load.
        shards: how many processes.
        log: how they log.

    Raises:
        UsageError: at start: flows can't be loaded, a setting is wrong.
        StoreError: at start: Redis can't be reached, or can't keep the promises.
    """

    def __init__(self, config: WorkerConfig, flows: Iterable[str], shards: int, log: c.LogSettings) -> None:
        if shards < 1:
            raise UsageError(f"expected a number of shards >= 1, got {shards}")
        self.config = config
        self._loop = Loop()
        self._slots = tuple(Slot(index, str(index)) for index in range(shards))
        totals = Totals(closed_series())
        own = Sheet.in_memory()
        totals.attach(OWN_PLACE, own.source)
        metrics = WorkerMetrics(own)
        self._scrapes = Scrapes(totals, own, metrics.refresh)
        self._aide = ParentsAide(tuple(flows), log, config, self._loop.post, totals)
        self.fleet = Fleet(self._slots, self._aide, totals, metrics, time.monotonic)
        self._aide.fleet = self.fleet
        self._exposition: Exposition | None = None
        if config.metrics_port is not None:
            self._exposition = Exposition(
                self._scrapes,
                alive=self._alive,
                ready=self._ready,
                port=config.metrics_port,
                otherwise=config.metrics_port_else,
                host=config.metrics_host,
            )
        self._station: Station | None = None
        self._came_round = time.monotonic()
        self._tick_due = 0.0
        self._signal: int | None = None

    @property
    def metrics_port(self) -> int | None:
        """The port of /metrics; None if it is not served."""
        return None if self._exposition is None else self._exposition.port

    @property
    def metrics_url(self) -> str | None:
        """Where /metrics is served, as seen from this machine; None if it is not."""
        return None if self._exposition is None else f"{self._exposition.url}/metrics"

    @property
    def worker_id(self) -> str:
        """What the worker is called (known after `start`)."""
        assert self._station is not None, "the worker has not been started"
        return self._station.worker_id

    @property
    def loaded(self) -> c.Loaded:
        """What the first shard has said of the flows; nothing if it was not reached before a signal came."""
        return self._slots[0].loaded or c.Loaded(())

    @property
    def running(self) -> bool:
        """Whether all shards have come to run."""
        return self.fleet.had_started

    @property
    def where(self) -> str:
        """The server, for people (known after `start`)."""
        assert self._station is not None, "the worker has not been started"
        return self._station.where

    @property
    def standing_by(self) -> bool:
        """Whether others hold all partitions."""
        return all(slot.standing_by for slot in self._slots)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels, over all shards, as of now; 0 where there is none."""
        return self._scrapes.sum(name, **labels)

    def install_signals(self) -> None:
        """Let SIGINT and SIGTERM drain the shards, and a second one end everything at once; main thread only."""
        for number in DRAINING_SIGNALS:
            signal.signal(number, self._signalled)

    def start(self) -> Self:
        """Let the shards load the flows, check the server, and let them run on it. Returns when all of them run, or
        when there is nothing to wait for any more, which `wait` then tells."""
        fleet = self.fleet
        set_title("worker", "(starting)")  # the command line may hold a password
        try:
            fleet.start()
            while not fleet.had_loaded and not self._ends:
                self._turn()
            if not self._ends:
                self._open()
            while not fleet.had_started and not self._ends:
                self._turn()
            if fleet.refusal is not None and not fleet.had_started:
                raise _as_error(fleet.refusal)
        except BaseException:
            self._leave()
            raise
        return self

    def wait(self) -> int:
        """Run until SIGINT or SIGTERM, or until the shards can't go on, then drain; 0, or 1 after a failure."""
        fleet = self.fleet
        try:
            while not fleet.over:
                if self._ends and not fleet.draining:
                    if self._signal is not None:
                        name = signal.Signals(self._signal).name
                        say(logger, "WorkerDraining", "got %s: draining, again to stop at once", name, reason=name)
                    fleet.drain(self.config.grace)
                self._turn()
        finally:
            self._leave()
        if fleet.failure:
            say(logger, "WorkerFailed", "the worker ends: %s", fleet.failure, detail=fleet.failure)
            return 1
        how = f"steps cut short: {fleet.cut_short}" if fleet.cut_short else "all ended"
        say(logger, "WorkerStopped", "worker stopped; %s", how, steps=fleet.cut_short)
        return 0

    @property
    def _ends(self) -> bool:
        return bool(
            self._signal is not None or self.fleet.failure or (self.fleet.refusal and not self.fleet.had_started)
        )

    def _open(self) -> None:
        self._station = station = Station(self.config)
        set_title("worker", station.worker_id)
        say_who(worker=station.worker_id)
        for slot in self._slots:
            slot.name = shard_id(station.worker_id, slot.index)
        self._aide.begin(station, open_store(connector(station.url), self.config))
        if self._exposition is not None:
            self._exposition.start()

    def _turn(self) -> None:
        """Wait for what happens next, at most a moment, and do what follows."""
        fleet = self.fleet
        owners = {fd: slot for slot, handle in fleet.living() for fd in handle.waitables}
        now = time.monotonic()
        dues = [self._tick_due, *([] if fleet.due is None else [fleet.due])]
        ready = self._loop.wait(owners, min(dues) - now)
        self._came_round = now = time.monotonic()
        ticks = now >= self._tick_due
        for slot in self._slots if ticks else {owners[fd].index: owners[fd] for fd in ready if fd in owners}.values():
            fleet.hear(slot)
            fleet.look(slot)
        if ticks:
            self._tick_due = now + TICK_SECONDS
            self._aide.look_at_boxes()
            tick_logging()
        fleet.tick()

    def _alive(self) -> str:
        now = time.monotonic()
        if now - self._came_round > STALE_SECONDS_MAX:
            return f"the loop that watches the shards has not come round for {now - self._came_round:.1f} s"
        return slots.alive(self._slots, now)

    def _ready(self) -> str:
        return slots.ready(self._slots)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is not None:
            for _, handle in self.fleet.living():
                kill_group(handle.pid)
            self._aide.close()
            os._exit(128 + number)
        self._signal = number
        self._loop.wake()

    def _leave(self) -> None:
        self.fleet.kill()
        if self._exposition is not None:
            self._exposition.stop()
        if self._station is not None:
            self._station.leave()
        self._aide.close()


def _as_error(refusal: c.Failed) -> StepwellError:
    """The error that a shard met, with its class where that is one of ours."""
    kind = getattr(errors, refusal.kind, None)
    if isinstance(kind, type) and issubclass(kind, UsageError | StoreError):
        return kind(refusal.reason)
    return StepwellError(refusal.reason)
