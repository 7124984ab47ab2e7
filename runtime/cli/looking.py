"""`show`, `list`: commands that only look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.durations import When
from stepwell.cli.executions import ExecutionId, read_attributes
from stepwell.cli.session import (
    NAMESPACE,
    Data,
    Json,
    Line,
    Namespace,
    Redis,
    Verbose,
    columns,
    cut,
    open_client,
    session,
)
from stepwell.cli.timeline import duration, timeline, utc
from stepwell.core.advice import NO_WORKER
from stepwell.core.status import TERMINAL

if TYPE_CHECKING:
    from stepwell.client.listing import Page

__all__ = ["Limit", "add_to", "listing", "show"]

ERROR_WIDTH: Final = 40
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Show at most so many.", min=1)]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(epilog="Examples:\n\nstepwell show A1\n\nstepwell show A1 --json | jq .error")(show)
    app.command(
        name="list",
        epilog="Examples:\n\nstepwell list\n\nstepwell list --status error --flow checkout --since '2h ago'\n\n"
        "stepwell list --attr customer=c7 --error CardDeclined",
    )(listing)


def show(
    context: typer.Context,
    id: ExecutionId,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show an execution: its steps with their attempts and backoffs on a time axis, and what to do if it failed."""
    own = session(context)
    with open_client(redis, data, namespace) as client:
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
    error: Annotated[
        str | None,
        typer.Option("--error", metavar="TYPE", help="Only those in error, or parked, for it, such as ValueError."),
    ] = None,
    attr: Annotated[
        list[str] | None,
        typer.Option("--attr", metavar="NAME=VALUE", help="Only those with it; may be given several times."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only from then on: '2h ago', '1h30m', or ISO 8601 (UTC).",
            parser=When(),
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only up to then.", parser=When())
    ] = None,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="C", help="Go on where the page before ended; same options.")
    ] = None,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List executions: the latest first, by when they ended or were parked, or else were started."""
    own = session(context)
    given = read_attributes(attr)
    with open_client(redis, data, namespace) as client:
        found = client.list(status, flow, limit, error=error, attributes=given, since=since, until=until, cursor=cursor)
        idle = any(each["status"] not in TERMINAL for each in found) and not client.workers()
    if own.json:
        own.answer_json({"executions": found, "cursor": found.cursor, "looked": found.looked})
        return
    if found:
        own.answer_lines(_table(found, int(time.time() * 1000), own.text_width))
    elif found.cursor is None and cursor is None:
        own.remark(f"there is no execution {_wanted(status, flow, error, given, since, until)}".rstrip())
    elif found.cursor is None:
        own.remark("there are no more")
    if found.cursor is not None:
        own.remark(f"looked at {found.looked:,}, found {len(found):,}; go on with --cursor {found.cursor}")
    if idle:
        own.remark(NO_WORKER)


def _wanted(
    status: str | None,
    flow: str | None,
    error: str | None,
    attributes: dict[str, str] | None,
    since: str | None,
    until: str | None,
) -> str:
    """The options in words."""
    pairs = " and ".join(f"{name}={value}" for name, value in (attributes or {}).items())
    said = {"of status": status, "of flow": flow, "with": pairs, "for": error, "since": since, "until": until}
    return " ".join(f"{word} {value}" for word, value in said.items() if value)


def _table(found: Page, now: int, width: int) -> list[Line]:
    """A row for each; the error's column only where there is one."""
    failed = any(each["error"] for each in found)
    rows = [["ID", "STATUS", "CREATED", "CHANGED", *(["ERROR"] if failed else []), "FLOW"]]
    for each in found:
        error = [cut(each["error"] or "", ERROR_WIDTH)] if failed else []
        changed = _ago(now, each["updated_at"])
        rows.append([each["id"], each["status"], utc(each["created_at"]), changed, *error, each["flow"]])
    return columns(rows, width)


def _ago(now: int, then: int | None) -> str:
    return "" if then is None else f"{duration(max(0, now - then))} ago"
