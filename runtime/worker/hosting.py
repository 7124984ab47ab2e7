"""One shard and what it tells, put together the same way wherever it runs: in its own process, or beside one's code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.bus import Bus, Subscriber
from stepwell.actors.failpoints import NO_FAILPOINTS, Failpoints
from stepwell.actors.tracing import Tracing
from stepwell.core.ownership import worker_of
from stepwell.flow.registry import Registry
from stepwell.flow.source import steps_of
from stepwell.metrics import tracing
from stepwell.metrics.saying import say
from stepwell.metrics.sheet import Sheet
from stepwell.store.namespace import Namespace
from stepwell.worker.settings import ShardSettings
from stepwell.worker.shard import RunningShard, ShardParts
from stepwell.worker.telemetry import Telemetry

__all__ = ["Hosted", "box_of", "host_shard", "sheet_of", "tracing_of"]

logger = logging.getLogger("stepwell.shard")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A shard that was started or can be, and its metrics."""

    shard: RunningShard
    telemetry: Telemetry

    def start(self) -> None:
        """Bring the shard to life."""
        self.shard.start()
        self.telemetry.watch(self.shard)


def host_shard(
    settings: ShardSettings,
    namespace: Namespace,
    registry: Registry,
    connect: Callable[[str], redis.Redis],
    *,
    on_failure: Callable[[str], None],
    on_trouble: Callable[[], None],
    subscribers: Sequence[Subscriber] = (),
    failpoints: Failpoints = NO_FAILPOINTS,
) -> Hosted:
    """Build a shard; see `ShardParts`."""
    flows = {flow.name: [step.name for step in steps_of(flow)] for flow in registry}
    telemetry = Telemetry(sheet_of(settings, flows.keys()), flows)
    traces = tracing_of(settings, telemetry.spans_lost)
    if traces is not None:
        telemetry.trace_by(traces.trace)
    shard = RunningShard(
        ShardParts(
            namespace=namespace,
            registry=registry,
            connect=connect,
            bus=Bus((*telemetry.subscribers, *subscribers), None if traces is None else traces.follow),
            observer=telemetry.observe,
            shard_id=settings.shard_id,
            limits=settings.limits,
            threads=settings.threads,
            on_failure=on_failure,
            on_dead_letter=telemetry.undelivered,
            on_trouble=on_trouble,
            failpoints=failpoints,
            box=box_of(settings),
            parent=settings.parent,
            life=settings.life,
            totals=telemetry.totals,
            guarantee=lambda: telemetry.guarantee,
            tracing=traces,
        )
    )
    return Hosted(shard, telemetry)


def tracing_of(settings: ShardSettings, lost: Callable[[str, int], None]) -> Tracing | None:
    """Who makes the shard's spans, if they are wanted. `lost` is told why so many of them could not be exported.

    Raises:
        UsageError: they were asked for and can't be made, or can't go where the variables say.
    """
    if not tracing.wanted(settings.otel):
        if settings.otel is None and (nowhere := tracing.why_nowhere()):
            say(logger, "TracingSeen", "%s: no spans are made", nowhere, detail=nowhere)
        elif settings.otel is None and (why := tracing.why_not()):
            told = "no spans are made, though OTEL_* variables say where they go: %s"
            say(logger, "TracingSeen", told, why, detail=why)
        return None
    traces = tracing.open_tracing(tracing.TraceSetup(worker_of(settings.shard_id), settings.shard_id), lost)
    if traces.target:
        say(logger, "TracingSeen", "spans go to %s", traces.target, detail=traces.target)
    else:
        why = tracing.why_nowhere()
        told = "spans are made and go nowhere: %s; unset it, or leave --otel out"
        say(logger, "TracingSeen", told, why, level=logging.WARNING, detail=why)
    return traces


def sheet_of(settings: ShardSettings, flows: Container[str] | None = None) -> Sheet:
    """Where the shard counts, by these flows. Nothing that is wrong with the file keeps it from its work."""
    if not settings.sheet:
        return Sheet.in_memory(flows=flows)
    try:
        return Sheet.open(Path(settings.sheet), flows=flows)
    except OSError as error:
        say(
            logger,
            "FileUnusable",
            "metrics of shard %s are not shown (%s: %s): make room there, or set TMPDIR, and restart the worker",
            settings.shard_id,
            settings.sheet,
            error.strerror,
            part="metrics",
            error=error,
        )
        return Sheet.in_memory(flows=flows)


def box_of(settings: ShardSettings) -> BlackBox:
    """The shard's black box. A full disk must not keep it from its work: it goes without one then."""
    if not settings.box:
        return NO_BOX
    try:
        return BlackBox.create(Path(settings.box))
    except OSError as error:
        say(
            logger,
            "FileUnusable",
            "shard %s has no black box (%s: %s): if it hangs nobody ends it, and if it dies all its open steps count as"
            " interrupted; make room there, or set TMPDIR, and restart the worker",
            settings.shard_id,
            settings.box,
            error.strerror,
            part="black box",
            error=error,
        )
        return NO_BOX
