"""`tail`: what happens, as it is recorded; one line for each event."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.durations import When
from stepwell.cli.session import NAMESPACE, Data, Json, Line, Namespace, Redis, Session, Verbose, open_client, session
from stepwell.core.errors import StoreError, UsageError
from stepwell.core.messages import message_of
from stepwell.core.redact import redact

if TYPE_CHECKING:
    from stepwell.core.eventlog import RawEvent
    from stepwell.core.events import Event
    from stepwell.store.events import Gap, Seen

__all__ = ["add_to", "tail"]

_ID_WIDTH_MAX: Final = 24
_STYLES: Final = {logging.ERROR: "bad", logging.WARNING: "busy"}
# What is said beside the sentence: the rest is in `--json`, or in `show`.
_MORE: Final = ("error", "detail", "where")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        epilog="Examples:\n\nstepwell tail A1\n\nstepwell tail --since 10m --kind AttemptFailed --kind StepGaveUp\n\n"
        "stepwell tail --no-follow --json | jq .execution"
    )(tail)


def tail(
    context: typer.Context,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this execution; ends when it has ended.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Begin there: '10m', '2h ago', or ISO 8601 (UTC).",
            parser=When(),
            show_default="all that is kept of an execution, or with --no-follow; else now",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="EVENT", help="Only events of these kinds (see docs).")
    ] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="NAME", help="Only events of this flow.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for what comes, or print what there is and end.")
    ] = True,
    stay: Annotated[bool, typer.Option("--stay", help="Go on after the end of the execution.")] = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what happens as it is recorded: steps, retries, ends, commands."""
    own = session(context)
    begins = since if since is not None else 0.0 if id is None and follow else None
    wanted = _filter(kind, flow)
    with open_client(redis, data, namespace) as client:
        idle = client.why_idle() if follow else ""
        if idle:
            own.remark(idle)
        away = _tells_of_outages(own) if follow else None
        _print(own, client.events(id, since=begins, follow=follow, stay=stay, away=away), wanted)


def _tells_of_outages(own: Session) -> Callable[[StoreError | None], None]:
    """Says once that Redis is away, and once that it is back."""

    def tell(error: StoreError | None) -> None:
        if error is None:
            own.remark("stepwell: the server answers again; what it has recorded meanwhile follows")
        else:
            own.remark(f"stepwell: {message_of(error)}; trying again until it answers")

    return tell


def _filter(kinds: list[str] | None, flow: str | None) -> Callable[[Event | RawEvent], bool]:
    from stepwell.core.eventlog import fields_of, kind_of
    from stepwell.metrics.telling import LEVELS

    known = {each.__name__.lower(): each.__name__ for each in LEVELS}
    for each in kinds or ():
        if each.lower() not in known:
            near = difflib.get_close_matches(each.lower(), known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(sorted(known.values()))}"
            raise UsageError(f"unknown kind of event {each!r}: {hint}")
    chosen = {known[each.lower()] for each in kinds or ()}

    def wanted(event: Event | RawEvent) -> bool:
        return (not chosen or kind_of(event) in chosen) and (flow is None or fields_of(event).get("flow") == flow)

    return wanted


def _print(own: Session, items: Iterable[Seen | Gap], wanted: Callable[[Event | RawEvent], bool]) -> None:
    from stepwell.store.events import CUT, Gap

    cut: list[Gap] = []
    width = 0
    for item in items:
        if isinstance(item, Gap):
            if own.json:
                _print_json(own, _gap_facts(item))
            elif item.why == CUT:
                cut.append(item)
            else:
                own.remark(
                    f"Redis has lost events of partition {item.partition}; what it recorded since may be missing"
                )
            continue
        if cut:
            own.remark(_cut_told(cut))
            cut = []
        if not wanted(item.event):
            continue
        if own.json:
            _print_json(own, _facts(item))
        else:
            width = min(_ID_WIDTH_MAX, max(width, len(_execution(item))))
            own.answer_lines([_line(own, item, width)])
        own.flush()
    if cut:
        own.remark(_cut_told(cut))


def _line(own: Session, item: Seen, width: int) -> Line:
    from stepwell.core.eventlog import RawEvent
    from stepwell.core.events import CommandDone, ExecutionEnded
    from stepwell.metrics.formatting import utc_ms
    from stepwell.metrics.telling import level_of, said

    message, fields = said(item.event)
    at = utc_ms(item.at)
    style = "" if isinstance(item.event, RawEvent) else _STYLES.get(level_of(item.event), "")
    if isinstance(item.event, ExecutionEnded) and not style:
        style = "good"
    if isinstance(item.event, RawEvent):
        more = [f"{name}={value}" for name, value in fields.items() if name != "execution"]
    else:
        more = [str(fields[name]) for name in _MORE if fields.get(name)]
        if isinstance(item.event, CommandDone) and not item.event.applied:
            # The reason is a sentence of its own for whoever sent it.
            begin = f"{item.event.command} of {item.event.execution_id} refused: "
            more.insert(0, item.event.reason.removeprefix(begin))
    text = ": ".join([message, *more[:1]]) + "".join(f" ({each})" for each in more[1:])
    path = str(fields.get("path") or "-")
    return [
        (f"{at[11:-1] if own.on_screen else at}  ", "dim"),
        (f"{redact(_execution(item)):<{width}}  {redact(path)}  ", ""),
        (redact(text), style),
    ]


def _execution(item: Seen) -> str:
    from stepwell.core.eventlog import execution_of

    return execution_of(item.event) or "?"


def _facts(item: Seen) -> dict[str, object]:
    from stepwell.core.eventlog import fields_of, kind_of

    fields = fields_of(item.event)
    facts: dict[str, object] = {"at": item.at, "event": kind_of(item.event)}
    facts["execution"] = fields.pop("execution_id", None)
    facts |= {"partition": item.partition, "entry": item.entry}
    return facts | {name if name not in facts else f"event.{name}": value for name, value in fields.items()}


def _gap_facts(gap: Gap) -> dict[str, object]:
    return {"event": "Gap", "why": gap.why, "partition": gap.partition, "after": gap.after, "before": gap.before}


def _print_json(own: Session, facts: dict[str, object]) -> None:
    """One object a line, whatever reads it."""
    own.answer_encoded(_as_json(facts))
    own.flush()


def _as_json(facts: dict[str, object]) -> str:
    import json

    return json.dumps(_clean(facts), ensure_ascii=False)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return redact(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value


def _cut_told(gaps: list[Gap]) -> str:
    from stepwell.metrics.formatting import utc_ms
    from stepwell.store.events import KEPT

    newest = max(int(gap.before.partition("-")[0]) for gap in gaps)
    where = "one partition" if len(gaps) == 1 else f"{len(gaps)} partitions"
    return f"older events were cut off, up to {utc_ms(newest)} ({where}; each keeps {KEPT:,} changes)"
