"""Wires what a shard tells to metrics and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stepwell.actors import store_events
from stepwell.actors.bus import Subscriber
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.logs import LogSubscriber, tick_logging
from stepwell.metrics.recent import counted_on
from stepwell.metrics.shard import ShardMetrics
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.subscriber import NO_FLOWS, MetricsSubscriber
from stepwell.worker.observing import count_observed
from stepwell.worker.shard import RunningShard
from stepwell.worker.shardlog import ShardLog


class Telemetry:
    """A shard's sheet, and the subscribers that write it. `flows`: by name, with the steps that their code names."""

    def __init__(self, sheet: Sheet, flows: Mapping[str, Iterable[str]] = NO_FLOWS) -> None:
        self.sheet = sheet
        """Where the shard counts."""
        self._counts = ShardMetrics(sheet)
        self.totals = partial(counted_on, sheet)
        """What has been counted by now."""
        self.guarantee: dict[str, str] = {}
        """What is in force, as labels; empty until the server has been asked."""
        self._log, self._shard_log = LogSubscriber(), ShardLog()
        self.subscribers: tuple[Subscriber, ...] = (MetricsSubscriber(sheet, flows), self._log)

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
        self.sheet.trace = self._log.trace = trace

    def watch(self, shard: RunningShard) -> None:
        """Report on that shard from now on."""
        self._counts.limits(shard.limits_by_place, shard.limits.running, shard.partitions)
        self._counts.watch(shard.now)

    def refresh(self) -> None:
        """Set gauges that are only known when they are asked for: before each scrape, or twice a second."""
        self._counts.refresh()
