"""/metrics, /healthz and /readyz of a worker that is one process: they show its only shard.

A shard in a process of its own loads nothing of this: its parent serves the pages.
"""

from __future__ import annotations

from stepwell.metrics.exposition import Exposition
from stepwell.metrics.instruments import closed_series
from stepwell.metrics.scraping import Scrapes
from stepwell.metrics.totals import Totals
from stepwell.metrics.worker import tell_what_runs
from stepwell.worker.health import NO_PARTITION, silence
from stepwell.worker.hosting import Hosted
from stepwell.worker.shard import RunningShard

__all__ = ["serve"]


def serve(hosted: Hosted, host: str, port: int) -> Exposition:
    """Open the endpoint; whoever called stops it.

    Raises:
        UsageError: the port can't be listened on.
    """
    shard, sheet = hosted.shard, hosted.telemetry.sheet
    tell_what_runs(sheet)
    totals = Totals(closed_series())
    totals.attach(0, sheet.source)
    exposition = Exposition(
        Scrapes(totals, sheet, hosted.telemetry.refresh),
        alive=lambda: silence(shard.seconds_since_tick),
        ready=lambda: _ready(shard),
        port=port,
        host=host,
    )
    exposition.start()
    return exposition


def _ready(shard: RunningShard) -> str:
    return shard.watchdog.problem() if shard.ready else NO_PARTITION
