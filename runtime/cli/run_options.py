"""The options of `stepwell run`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from stepwell.cli.durations import Seconds
from stepwell.core.limits import GRACE_MOST, PASSIVATE_LEAST

__all__ = [
    "METRICS_HOST",
    "METRICS_PORT",
    "Durability",
    "Grace",
    "LogJson",
    "MaxInMemory",
    "MaxRunning",
    "MaxSteps",
    "Metrics",
    "MetricsHost",
    "MetricsPort",
    "Otel",
    "PassivateAfter",
    "Processes",
    "Replicas",
    "Shards",
    "Threads",
    "WorkerId",
]

METRICS_PORT: Final = 9464
METRICS_HOST: Final = "0.0.0.0"

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        help="Port of /metrics, /healthz and /readyz; 0: any free one.",
        show_default=f"{METRICS_PORT}, or a free one if that is taken",
        min=0,
        max=65535,
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host",
        metavar="ADDRESS",
        help="Where that port is opened; 127.0.0.1: for this machine only, ::: by IPv6, too.",
        show_default=f"{METRICS_HOST}, all of IPv4",
    ),
]
Metrics = Annotated[
    bool, typer.Option("--metrics/--no-metrics", help="Whether there are such pages.", show_default="there are")
]
Shards = Annotated[
    int | None,
    typer.Option("--shards", metavar="N", help="Processes that run flows.", show_default="one per core", min=1),
]
MaxRunning = Annotated[
    int,
    typer.Option("--max-running", metavar="N", help="Executions that run at once in a shard; more wait.", min=1),
]
MaxSteps = Annotated[
    int,
    typer.Option("--max-steps", metavar="N", help="Steps written as `async def` that run at once in a shard.", min=1),
]
MaxInMemory = Annotated[
    int,
    typer.Option(
        "--max-in-memory", metavar="N", help="Executions in a shard's memory; beyond it those at rest leave.", min=1
    ),
]
PassivateAfter = Annotated[
    float,
    typer.Option(
        "--passivate-after",
        metavar="SECONDS",
        help="What waits for longer leaves memory until then.",
        parser=Seconds(least=PASSIVATE_LEAST),
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", metavar="N", help="Steps written as `def` that run at once in a shard.", min=1)
]
Processes = Annotated[
    int,
    typer.Option("--processes", metavar="N", help='Steps with isolation="process" that run at once in a shard.', min=1),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        help="Time that running steps get when the worker is stopped.",
        parser=Seconds(most=GRACE_MOST),
    ),
]
Durability = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="MODE",
        help="When a write counts: relaxed (executed), aof (on the disk), replicated (on replicas).",
        show_default="$STEPWELL_DURABILITY, else as the namespace has it",
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option("--replicas", metavar="N", help="Replicas that must have each write.", show_default="1", min=1),
]
WorkerId = Annotated[
    str | None,
    typer.Option(
        "--worker-id",
        metavar="NAME",
        help="What this worker is called among all on one server; partitions follow the name over restarts.",
        show_default="kept in the data folder, else a new one",
    ),
]
Otel = Annotated[
    bool | None,
    typer.Option(
        "--otel/--no-otel",
        help="Export OpenTelemetry spans to where the OTEL_* variables say.",
        show_default="if they say so, or a module of flows has set up a tracer provider",
    ),
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON, one object a line.")]
