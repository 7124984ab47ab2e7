"""Wires what a shard tells to metrics, logs and the HTTP endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stepwell.actors import store_events
from stepwell.actors.bus import Subscriber
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.exposition import Exposition
from stepwell.metrics.instruments import closed_series
from stepwell.metrics.logs import LogSubscriber, tick_logging
from stepwell.metrics.recent import counted_on
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.shard import ShardMetrics
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import NO_FLOWS, MetricsSubscriber
from stepwell.metrics.totals import Totals
from stepwell.metrics.worker import tell_what_runs
from stepwell.worker.observing import count_observed
from stepwell.worker.shard import RunningShard
from stepwell.worker.shardlog import ShardLog

SILENCE_SECONDS_MAX = 10.0


class Telemetry:
    """A shard's sheet, the subscribers that write it, and the endpoint that shows it where no parent does. `flows`: by
    name, with the steps that their code names."""

    def __init__(self, sheet: Sheet, flows: Mapping[str, Iterable[str]] = NO_FLOWS) -> None:
        self._sheet = sheet
        self._counts = ShardMetrics(sheet)
        self.totals = partial(counted_on, sheet)
        """What has been counted by now."""
        self.guarantee: dict[str, str] = {}
        """What is in force, as labels; empty until the server has been asked."""
        self._log, self._shard_log = LogSubscriber(), ShardLog()
        self.subscribers: tuple[Subscriber, ...] = (MetricsSubscriber(sheet, flows), self._log)
        self._shard: RunningShard | None = None
        self._exposition: Exposition | None = None

    @property
    def port(self) -> int | None:
        """The port that is served; None if none is."""
        return None if self._exposition is None else self._exposition.port

    def observe(self, event: StoreEvent) -> None:
        """Count what the shard's threads see, and log what is to be logged. Called from any thread."""
        count_observed(self._counts, event)
        self._shard_log(event)
        if isinstance(event, store_events.GuaranteeSeen):
            self.guarantee = event.labels
        elif isinstance(event, store_events.ExecutionsCounted | store_events.StoreTrouble):
            self.tick_logs()  # every few seconds, and all the more where Redis is away

    def tick_logs(self, all_of_it: bool = False) -> None:
        """Let the log tell how many lines it has left out by now; `all_of_it`: for this is the end."""
        for log in (self._log, self._shard_log):
            log.flush() if all_of_it else log.tick()
        tick_logging(all_of_it)

    def undelivered(self, _message: object, _name: str) -> None:
        """Count a message to an actor that was gone."""
        self._counts.undelivered()

    def spans_lost(self, reason: str, spans: int) -> None:
        """Count spans that were made and not exported. Called from any thread."""
        self._counts.spans_lost(reason, spans)

    def trace_by(self, trace: Callable[[str], str]) -> None:
        """Ask that for the trace of an execution, wherever one is named: in exemplars and log lines."""
        self._sheet.trace = self._log.trace = trace

    def watch(self, shard: RunningShard) -> None:
        """Report on that shard from now on."""
        self._shard = shard
        self._counts.limits(shard.limits_by_place, shard.limits.running, shard.partitions)
        self._counts.watch(shard.now)

    def refresh(self) -> None:
        """Set gauges that are only known when they are asked for: before each scrape, or twice a second."""
        self._counts.refresh()

    def serve(self, host: str, port: int) -> None:
        """Open the endpoint.

        Raises:
            UsageError: the port can't be listened on.
        """
        tell_what_runs(self._sheet)
        totals = Totals(closed_series())
        totals.attach(0, self._sheet.source)
        scrapes = Scrapes(totals, self._sheet, self.refresh)
        exposition = Exposition(scrapes, alive=self._alive, ready=self._ready, port=port, host=host)
        exposition.start()
        self._exposition = exposition

    def close(self) -> None:
        """Close the endpoint, and tell what was left out of the log."""
        self.tick_logs(all_of_it=True)
        if self._exposition is not None:
            self._exposition.stop()
            self._exposition = None

    def _alive(self) -> str:
        shard = self._shard
        silent = None if shard is None else shard.seconds_since_tick
        if silent is None or silent <= SILENCE_SECONDS_MAX:
            return ""
        return f"the thread that renews leases has not come round for {silent:.1f} s"

    def _ready(self) -> str:
        shard = self._shard
        if shard is None or not shard.ready:
            return "no partition is owned (yet)"
        return shard.watchdog.problem()
