"""`Worker`: runs flows in this process, on the embedded server or on a Redis of one's own."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Self

from stepwell.actors.bus import Subscriber
from stepwell.actors.failpoints import NO_FAILPOINTS, Failpoints
from stepwell.client.address import promised, resolve
from stepwell.core.durations import seconds
from stepwell.core.errors import DefinitionError
from stepwell.core.limits import GRACE_MOST
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.core.redact import redact
from stepwell.flow.definitions import FlowLike
from stepwell.flow.registry import Registry
from stepwell.metrics.exposition import Exposition
from stepwell.metrics.saying import say
from stepwell.worker.config import WorkerConfig
from stepwell.worker.endpoint import serve
from stepwell.worker.hosting import host_shard
from stepwell.worker.naming import shard_id
from stepwell.worker.opening import Station, connector, open_store
from stepwell.worker.settings import settings_of
from stepwell.worker.shard import RunningShard
from stepwell.worker.telemetry import Telemetry

logger = logging.getLogger("stepwell.worker")
LOOK_SECONDS = 1.0


class Worker:
    """Runs flows until it is stopped.

    `with Worker([checkout], redis="redis://localhost:6379"):` runs them beside the block; `Worker([...]).run()`
    runs them until Ctrl-C or SIGTERM and drains. With no `redis` URL it uses `STEPWELL_REDIS_URL`, else the
    embedded server of `data` (`STEPWELL_DATA`, `./.stepwell`).

    Raises:
        DefinitionError: no flow, or two of one name.
        UsageError: a setting is out of range (see `WorkerConfig`).
        StoreError: at start: Redis can't be reached, or can't keep the promises.
    """

    def __init__(
        self,
        flows: Iterable[FlowLike] | FlowLike,
        *,
        redis: str | None = None,
        data: str | Path | None = None,
        namespace: str = "stepwell",
        partitions: int = DEFAULT_PARTITIONS,
        max_running: int = 1000,
        max_steps: int = 1000,
        threads: int = 32,
        processes: int = 4,
        max_in_memory: int = 20_000,
        passivate_after: float = 30.0,
        grace: float = 30.0,
        durability: str | None = None,
        worker_id: str | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "0.0.0.0",
        otel: bool | None = None,
        subscribers: Iterable[Subscriber] = (),
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self.registry = Registry(flows)
        if not len(self.registry):
            raise DefinitionError("a worker needs at least one flow: pass functions decorated with @flow")
        self.config = WorkerConfig(
            address=resolve(redis, data),
            namespace=namespace,
            partitions=partitions,
            max_running=max_running,
            max_steps=max_steps,
            threads=threads,
            processes=processes,
            max_in_memory=max_in_memory,
            passivate_after=passivate_after,
            grace=grace,
            durability=promised(durability),
            worker_id=worker_id,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            otel=otel,
        )
        self._subscribers = tuple(subscribers)
        self._failpoints = failpoints
        self._station: Station | None = None
        self._shard: RunningShard | None = None
        self._telemetry: Telemetry | None = None
        self._exposition: Exposition | None = None
        # Set also by a signal's handler: it may interrupt whatever holds a lock, so it takes none (`put` is reentrant).
        self._over = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._signal: int | None = None
        self._hurry = threading.Event()
        self._failure: str | None = None
        self.cut_short = 0
        """Steps whose bodies were still running when the grace was over."""

    @property
    def url(self) -> str:
        """URL of the server in use (known after `start`)."""
        assert self._station is not None, "the worker has not been started"
        return self._station.url

    @property
    def metrics_port(self) -> int | None:
        """The port of /metrics; None while it is not served."""
        return None if self._exposition is None else self._exposition.port

    @property
    def shard(self) -> RunningShard:
        """The running shard."""
        assert self._shard is not None, "the worker has not been started"
        return self._shard

    def start(self) -> Self:
        """Connect, check the server, take partitions and begin. Returns at once; `stop` ends it."""
        try:
            self._start()
        except BaseException:
            self._leave()
            raise
        return self

    def stop(self, grace: float | None = None) -> None:
        """Drain (at most `grace` seconds, the configured ones by default) and end. Safe to call twice. Where a part of
        it has failed nothing is waited for, and nobody is told that a drain has cut short what still runs.

        Raises UsageError, and goes on running, where `grace` is no number of seconds up to a day.
        """
        patience = self.config.grace if grace is None else seconds(grace, "grace", most=GRACE_MOST)
        shard, self._shard = self._shard, None
        try:
            if shard is not None:
                try:
                    if self._failure is None:
                        self.cut_short = shard.drain(patience, self._hurry)
                    else:
                        shard.give_up()
                finally:
                    shard.stop()
        finally:
            self._leave()

    def run(self) -> int:
        """Run until SIGINT or SIGTERM, then drain; a second signal ends the process at once. Returns the exit code."""
        self.install_signals()
        self.start()
        where = self._station.where if self._station else ""
        say(logger, "WorkerStarted", "worker is running: %d flows, server %s", len(self.registry), where)
        return self.wait()

    def install_signals(self) -> None:
        """Let SIGINT and SIGTERM drain this worker; main thread only."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)

    def wait(self) -> int:
        """Wait for the end, then stop; 0 after a drain, 1 after a failure."""
        while not self._over:
            # A signal that the system gave to another thread does not end this wait: its handler runs after it.
            with contextlib.suppress(Empty):
                self._wake.get(timeout=LOOK_SECONDS)
        if self._signal is not None:
            name = signal.Signals(self._signal).name
            say(logger, "WorkerDraining", "got %s: draining, again to stop at once", name, reason=name)
        try:
            self.stop()
        except Exception as error:
            logger.debug("the worker did not stop in good order", exc_info=True)
            self._failed(redact(f"it did not stop in good order: {type(error).__name__}: {error}"))
        if self._failure is not None:
            say(logger, "WorkerFailed", "the worker ends: %s", self._failure, detail=self._failure)
            return 1
        how = f"steps cut short: {self.cut_short}" if self.cut_short else "all ended"
        say(logger, "WorkerStopped", "worker stopped; %s", how, steps=self.cut_short)
        return 0

    def end(self) -> None:
        """Let `wait` return, as a signal would."""
        self._over = True
        self._wake.put(None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> None:
        self._station = Station(self.config)
        connect_as = connector(self._station.url)
        namespace = open_store(connect_as, self.config)
        hosted = host_shard(
            settings_of(self.config, shard_id(self._station.worker_id, 0)),
            namespace,
            self.registry,
            connect_as,
            on_failure=self._failed,
            on_trouble=self._revive,
            subscribers=self._subscribers,
            failpoints=self._failpoints,
        )
        self._telemetry, self._shard = hosted.telemetry, hosted.shard
        hosted.start()
        if self.config.metrics_port is not None:
            self._exposition = serve(hosted, self.config.metrics_host, self.config.metrics_port)

    def _revive(self) -> None:
        if self._station is not None:
            self._station.revive()

    def _failed(self, reason: str) -> None:
        self._failure = self._failure or reason
        self.end()

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._over:
            os._exit(128 + number)
        self._signal = number
        self.end()

    def _leave(self) -> None:
        if self._telemetry is not None:
            self._telemetry.tick_logs(all_of_it=True)
            self._telemetry = None
        if self._exposition is not None:
            self._exposition.stop()
            self._exposition = None
        if self._station is not None:
            self._station.leave()
            self._station = None
