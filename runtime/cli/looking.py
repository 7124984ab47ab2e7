"""`show`, `list`: commands that only look."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stepwell.cli.executions import ExecutionId
from stepwell.cli.session import Data, Json, Redis, Verbose, columns, open_client, session
from stepwell.cli.timeline import duration, timeline, utc
from stepwell.core.advice import NO_WORKER
from stepwell.core.status import TERMINAL

__all__ = ["Limit", "add_to", "listing", "show"]

Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Show at most so many.", min=1)]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(epilog="Examples:\n\nstepwell show A1\n\nstepwell show A1 --json | jq .error")(show)
    app.command(name="list", epilog="Examples:\n\nstepwell list\n\nstepwell list --status error --flow checkout")(
        listing
    )


def show(
    context: typer.Context,
    id: ExecutionId,
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show an execution: its steps with their attempts and backoffs on a time axis, and what to do if it failed."""
    own = session(context)
    with open_client(redis, data) as client:
        found = client.describe(id)
        idle = found["status"] not in TERMINAL and not client.workers()
    if own.json:
        own.answer_json(found)
        return
    own.answer_lines(timeline(found, int(time.time() * 1000), own.width, own.ascii, whole=not own.on_screen))
    if idle:
        own.remark(NO_WORKER)


def listing(
    context: typer.Context,
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help="Only those of this status, such as error or waiting.")
    ] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="NAME", help="Only those of this flow.")] = None,
    limit: Limit = 100,
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List executions, those first that reached their status last."""
    own = session(context)
    with open_client(redis, data) as client:
        found = client.list(status, flow, limit)
        idle = any(each["status"] not in TERMINAL for each in found) and not client.workers()
    if own.json:
        own.answer_json(found)
        return
    if not found:
        wanted = " ".join(
            word for word in (f"of status {status}" if status else "", f"of flow {flow}" if flow else "") if word
        )
        own.remark(f"there is no execution {wanted}".rstrip())
        return
    now = int(time.time() * 1000)
    rows = [["ID", "STATUS", "CREATED", "CHANGED", "FLOW"]]
    rows += [[e["id"], e["status"], utc(e["created_at"]), _ago(now, e["updated_at"]), e["flow"]] for e in found]
    own.answer_lines(columns(rows, own.text_width))
    if len(found) == limit:
        own.remark(f"the first {limit}; --limit shows more")
    if idle:
        own.remark(NO_WORKER)


def _ago(now: int, then: int | None) -> str:
    return "" if then is None else f"{duration(max(0, now - then))} ago"
