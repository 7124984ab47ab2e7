"""`run` and `demo`: commands that are workers, or start some."""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.session import Data, Redis, Session, Verbose, resolved, session

if TYPE_CHECKING:
    from stepwell.client.address import Address
    from stepwell.worker import Worker

__all__ = ["add_to", "demo", "run"]

METRICS_PORT: Final = 9464
METRICS_HOST: Final = "0.0.0.0"
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        help='Steps with isolation="process" that run at once.',
        min=1,
    ),
]

logger = logging.getLogger("stepwell.cli")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(
        epilog="Examples:\n\nstepwell run flows.py\n\nstepwell run shop.flows depot.flows --redis redis://localhost:6379\n\n"
        "stepwell run flows.py --metrics-port 0 --grace 60 --log-json"
    )(run)
    app.command(epilog="Example:\n\nstepwell demo")(demo)


def run(
    context: typer.Context,
    targets: Annotated[
        list[str], typer.Argument(metavar="FILE_OR_MODULE...", help="Where the flows are: flows.py, or shop.flows.")
    ],
    redis: Redis = None,
    data: Data = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            help="Port of /metrics, /healthz and /readyz; 0: any free one.",
            show_default=f"{METRICS_PORT}, or a free one if that is taken",
            min=0,
            max=65535,
        ),
    ] = None,
    max_running: Annotated[
        int, typer.Option("--max-running", metavar="N", help="Executions that run at once; more wait.", min=1)
    ] = 1000,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", help="Steps written as `def` that run at once.", min=1)
    ] = 32,
    processes: Processes = 4,
    grace: Annotated[
        float,
        typer.Option(
            "--grace", metavar="SECONDS", help="Time that running steps get when the worker is stopped.", min=0.0
        ),
    ] = 30.0,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON, one object a line.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run flows until Ctrl-C or SIGTERM; then let running steps finish, and end."""
    # Before the flows: a file of theirs must not stand in for a module of ours.
    from stepwell.flow.lint import lint
    from stepwell.flow.loader import load
    from stepwell.metrics.logs import setup_logging
    from stepwell.worker import Worker
    from stepwell.worker.process import calm_the_collector

    own = session(context)
    address = resolved(redis, data)
    setup_logging(log_json, logging.DEBUG if own.verbose else logging.INFO)
    flows = load(targets)
    worker = Worker(
        flows,
        redis=address.url,
        data=address.data_dir,
        metrics_port=_free_port() if metrics_port is None else metrics_port,
        metrics_host=METRICS_HOST,
        max_running=max_running,
        threads=threads,
        processes=processes,
        grace=grace,
    )
    worker.install_signals()
    worker.start()
    # After it has connected: who has no server yet is told of that first.
    for flow in flows:
        for finding in lint(flow):
            logger.warning("%s", finding)
    calm_the_collector()
    _announce(own, worker, address, log_json)
    code = worker.wait()
    if worker.cut_short:
        _exit_now(code)
    raise typer.Exit(code)


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


def _exit_now(code: int) -> None:
    """Bodies that outlived the grace may hold threads that Python would wait for, and others may run their steps by
    now: the partitions are given back."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _free_port() -> int:
    """The usual port; where something else has it, any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((METRICS_HOST, METRICS_PORT))
        except OSError:
            logger.warning(
                "port %d is taken: metrics are served on a free port (choose one by --metrics-port)", METRICS_PORT
            )
            return 0
    return METRICS_PORT


def _announce(own: Session, worker: Worker, address: Address, log_json: bool) -> None:
    from stepwell.core.redact import redact_url

    names = sorted(flow.name for flow in worker.registry)
    server = redact_url(address.url) if address.url is not None else f"embedded in {address.data_dir}"
    metrics = f"http://localhost:{worker.metrics_port}/metrics"
    standing_by = worker.shard.standing_by
    if log_json:
        own.answer_json({"running": names, "standing_by": standing_by, "server": server, "metrics": metrics})
    else:
        does = "standing by (there are more shards than partitions) with" if standing_by else "running"
        own.answer(f"stepwell: {does} {', '.join(names)}; server {server}; metrics {metrics}")
    own.flush()
