"""`run` and `demo`: commands that are workers, or start some."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli import run_options as option
from stepwell.cli.run_options import METRICS_HOST, METRICS_PORT
from stepwell.cli.session import NAMESPACE, Data, Namespace, Redis, Session, Verbose, VerboseLogs, resolved, session
from stepwell.metrics.saying import say

if TYPE_CHECKING:
    from stepwell.worker.parent import Parent

__all__ = ["add_to", "demo", "run"]

logger = logging.getLogger("stepwell.cli")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(
        epilog="Examples:\n\nstepwell run flows.py\n\nstepwell run shop.flows depot.flows --redis redis://localhost:6379\n\n"
        "stepwell run flows.py --shards 4 --metrics-port 0 --grace 60 --log-json"
    )(run)
    app.command(epilog="Example:\n\nstepwell demo")(demo)


def run(
    context: typer.Context,
    targets: Annotated[
        list[str], typer.Argument(metavar="FILE_OR_MODULE...", help="Where the flows are: flows.py, or shop.flows.")
    ],
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    metrics_port: option.MetricsPort = None,
    metrics_host: option.MetricsHost = METRICS_HOST,
    metrics: option.Metrics = True,
    shards: option.Shards = None,
    max_running: option.MaxRunning = 1000,
    max_steps: option.MaxSteps = 1000,
    threads: option.Threads = 32,
    processes: option.Processes = 4,
    max_in_memory: option.MaxInMemory = 20_000,
    passivate_after: option.PassivateAfter = 30.0,
    grace: option.Grace = 30.0,
    durability: option.Durability = None,
    replicas: option.Replicas = None,
    worker_id: option.WorkerId = None,
    otel: option.Otel = None,
    log_json: option.LogJson = False,
    verbose: VerboseLogs = False,
) -> None:
    """Run flows until Ctrl-C or SIGTERM; then let running steps finish, and end."""
    from stepwell.client.address import promised
    from stepwell.core.errors import UsageError
    from stepwell.metrics.logs import setup_logging
    from stepwell.worker.config import WorkerConfig
    from stepwell.worker.control import LogSettings
    from stepwell.worker.parent import Parent
    from stepwell.worker.process import cores

    if metrics_port is not None and not metrics:
        raise UsageError("--metrics-port and --no-metrics exclude each other")
    own = session(context)
    log = LogSettings(log_json, logging.DEBUG if own.verbose else logging.INFO)
    setup_logging(log.json, log.level)
    config = WorkerConfig(
        resolved(redis, data),
        namespace=namespace,
        max_running=max_running,
        max_steps=max_steps,
        max_in_memory=max_in_memory,
        passivate_after=passivate_after,
        threads=threads,
        processes=processes,
        grace=grace,
        durability=promised(durability, replicas),
        worker_id=worker_id,
        metrics_port=None if not metrics else METRICS_PORT if metrics_port is None else metrics_port,
        metrics_port_else=0 if metrics_port is None else None,
        metrics_host=metrics_host.strip("[]"),
        otel=otel,
    )
    parent = Parent(config, targets, cores() if shards is None else shards, log)
    parent.install_signals()
    parent.start()
    # After it has connected: who has no server yet is told of that first.
    for finding in parent.loaded.findings:
        say(logger, "FlowFinding", "%s", finding, detail=finding)
    if parent.running:
        _announce(own, parent, log_json)
    raise typer.Exit(parent.wait())


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data, the logs and the receiver's ledger.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Draws the receiver's bad habits.", show_default=False)
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run 50 order flows through crashes, failures and lost replies, and count what the receiver saw."""
    from stepwell.demo import main

    arguments = [*(["--keep"] if keep else []), *(["--seed", str(seed)] if seed is not None else [])]
    raise typer.Exit(main(arguments))


def _announce(own: Session, parent: Parent, log_json: bool) -> None:
    names, count, server = list(parent.loaded.flows), len(parent.fleet.slots), parent.where
    metrics = parent.metrics_url
    if log_json:
        facts = {"running": names, "worker": parent.worker_id, "shards": count, "standing_by": parent.standing_by}
        own.answer_json({**facts, "server": server, "metrics": metrics})
    else:
        does = "standing by (others have all partitions) with" if parent.standing_by else "running"
        shards = f"{count} shard{'s' if count > 1 else ''}"
        own.answer(f"stepwell: {does} {', '.join(names)}; {shards}; server {server}; metrics {metrics or 'off'}")
    own.flush()
