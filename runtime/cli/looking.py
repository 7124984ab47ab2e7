"""`show`, `list`: commands that only look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.choosing import Filter, OfStep, nothing_found
from stepwell.cli.durations import When
from stepwell.cli.executions import ExecutionId, read_attributes
from stepwell.cli.session import (
    LAST_LEAST,
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
from stepwell.core.attributes import Attribute, text_of
from stepwell.core.escapes import escaped
from stepwell.core.status import TERMINAL

if TYPE_CHECKING:
    from stepwell.client import Page

__all__ = ["Limit", "add_to", "listing", "show"]

ERROR_WIDTH: Final = 40
ATTRIBUTE_WIDTH: Final = 24
ATTEMPT, STEP = 2, 3  # columns of what backs off
STEP_LEAST: Final = 12
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Show at most so many.", min=1)]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(epilog="Examples:\n\nstepwell show A1\n\nstepwell show A1 --json | jq .error")(show)
    app.command(
        name="list",
        epilog="Examples:\n\nstepwell list\n\nstepwell list --status error --flow checkout --since '2h ago'\n\n"
        "stepwell list --attr customer=c7 --error CardDeclined\n\n"
        "stepwell list --backing-off --flow checkout --step charge",
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
        idle = "" if found["status"] in TERMINAL else client.why_idle()
        now = client.now_ms()
    if own.json:
        own.answer_json(found)
        return
    own.answer_lines(timeline(found, now, own.width, own.ascii, whole=not own.on_screen))
    if idle:
        own.remark(idle)


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
            help="Only from then on: '2h ago', '1h30m', ISO 8601 (UTC), or as --json has it.",
            parser=When(),
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only up to then.", parser=When())
    ] = None,
    backing_off: Annotated[
        bool,
        typer.Option("--backing-off", help="Only those of which a step waits for its next attempt, the soonest first."),
    ] = False,
    step: OfStep = None,
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
    """List executions: the latest first, by when they ended or were parked, or else were started.

    With --backing-off: who waits for its next attempt, by when that is due; --error is the last attempt's then."""
    own = session(context)
    given = read_attributes(attr)
    of = Filter(status, flow, error, given, since, until, backing_off, step)
    with open_client(redis, data, namespace) as client:
        found = of.page(client, status, limit, cursor)
        idle = client.why_idle() if any(each["status"] not in TERMINAL for each in found) else ""
        nothing = "" if found or own.json else nothing_found(client, of.words, flow)
    if own.json:
        own.answer_json({"executions": found, "cursor": found.cursor, "looked": found.looked, "at": found.at})
        return
    if found:
        table = _backoffs if backing_off else _table
        own.answer_lines(table(found, list(given or ()), own.text_width))
    elif found.cursor is None and cursor is None:
        own.remark(nothing)
    elif found.cursor is None:
        own.remark("there are no more")
    if found.cursor is not None:
        looked = "" if found.looked == len(found) else f"looked at {found.looked:,}, found {len(found):,}; "
        own.remark(f"{looked}go on with --cursor {found.cursor}")
    if idle:
        own.remark(idle)


def _table(found: Page, attributes: Sequence[str], width: int) -> list[Line]:
    """A row for each; the error's column only where there is one, and those of the attributes that were asked for."""
    failed = any(each["error"] for each in found)
    rows = [["ID", "STATUS", "CREATED", "CHANGED", *(["ERROR"] if failed else []), *attributes, "FLOW"]]
    for each in found:
        error = [cut(each["error"] or "", ERROR_WIDTH)] if failed else []
        changed = _ago(found.at, each["updated_at"])
        values = _values(each["attributes"], attributes)
        rows.append([each["id"], each["status"], utc(each["created_at"]), changed, *error, *values, each["flow"]])
    return columns(rows, width, ("CREATED",))


def _backoffs(found: Page, attributes: Sequence[str], width: int) -> list[Line]:
    """A row for each: the coming attempt of its step that is due first, and why the last one failed."""
    rows = [["ID", "DUE IN", "ATTEMPT", "STEP", *attributes, "LAST ERROR"]]
    for each in found:
        backoff = each["backoff"]
        most, others, late = backoff["max_attempts"], backoff["others"], found.at - backoff["due_at"]
        due = duration(-late) if late <= 0 else f"{duration(late)} late"
        attempt = f"{backoff['attempt']}{f' of {most}' if most else ''}"
        step = f"{each['flow']}/{backoff['path']}{f' and {others} more' if others else ''}"
        error = ": ".join(filter(None, (backoff["error_type"], backoff["error"])))
        rows.append([each["id"], due, attempt, step, *_values(each["attributes"], attributes), error])
    return columns(_with_short_steps(rows, width), width, ("ATTEMPT", *attributes))


def _with_short_steps(rows: list[list[str]], width: int) -> list[list[str]]:
    """The same, with flows and paths shortened as far as it takes to fit the screen without the attempts."""
    from stepwell.cli.tables import shortened

    widths = [max(len(escaped(row[place])) for row in rows) for place in range(len(rows[0]))]
    others = [*widths[:ATTEMPT], *widths[STEP + 1 : -1], min(widths[-1], LAST_LEAST)]
    room = max(STEP_LEAST, width - sum(others) - 2 * len(others))
    return [[*row[:STEP], shortened(row[STEP], room, ascii_only=False), *row[STEP + 1 :]] for row in rows]


def _values(given: Mapping[str, Attribute], attributes: Sequence[str]) -> list[str]:
    return [cut(text_of(given.get(name, "")), ATTRIBUTE_WIDTH) for name in attributes]


def _ago(now: int, then: int | None) -> str:
    return "" if then is None else f"{duration(max(0, now - then))} ago"
