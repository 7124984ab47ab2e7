"""`doctor`: says which guarantee is in force, and whether a promise can't be kept."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.session import NAMESPACE, Data, Json, Line, Namespace, Redis, Verbose, resolved, session

if TYPE_CHECKING:
    from stepwell.store.guarantees import Facts, Finding

__all__ = ["add_to", "doctor"]

BROKEN_CODE: Final = 1
SIGNS: Final = {"ok": ("✓", "good"), "warning": ("!", "busy"), "broken": ("✗", "bad")}
ASCII: Final = {"ok": "+", "warning": "!", "broken": "x"}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        epilog="Examples:\n\nstepwell doctor\n\nstepwell doctor --redis redis://localhost:6379 --durability aof\n\n"
        "Exit codes: 0 all promises can be kept (warnings may be shown), 1 one can't, 2 the server can't be asked."
    )(doctor)


def doctor(
    context: typer.Context,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability",
            metavar="MODE",
            help="Judge for relaxed, aof or replicated:N.",
            show_default="$STEPWELL_DURABILITY, else the namespace's",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="How many the namespace should have.", min=1, max=16384),
    ] = None,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Say which guarantee is in force: what a crash can undo, and whether a promise can't be kept."""
    from importlib.metadata import version

    from stepwell.client.address import Place, promised
    from stepwell.store.connect import connect
    from stepwell.store.examination import examine
    from stepwell.store.guarantees import judge

    own = session(context)
    wanted = promised(durability)
    place = Place(resolved(redis, data))
    try:
        with connect(place.url, client_name="stepwell-doctor") as client:
            facts = examine(
                client,
                namespace,
                wall_ms=lambda: time.time() * 1000,
                version=version("stepwell"),
                partitions=partitions,
                durability=wanted,
            )
    finally:
        place.leave()
    findings = judge(facts)
    broken = sum(each.level == "broken" for each in findings)
    if own.json:
        own.answer_json(_document(facts, findings))
    else:
        own.answer_lines(_lines(findings, own.ascii))
        own.answer(_verdict(broken, sum(each.level == "warning" for each in findings)))
    raise typer.Exit(BROKEN_CODE if broken else 0)


def _document(facts: Facts, findings: Iterable[Finding]) -> dict[str, object]:
    from stepwell.store.guarantees import labels

    found = [
        {"level": each.level, "topic": each.topic, "text": each.text, "to_do": each.to_do or None} for each in findings
    ]
    workers = [{"id": each.id, "version": each.version, "durability": each.durability} for each in facts.workers]
    return {
        "ok": all(each["level"] != "broken" for each in found),
        "guarantee": labels(facts),
        "findings": found,
        "workers": workers,
        "clock_ms": {server: round(offset, 1) for server, offset in facts.clock_ms.items()},
    }


def _lines(findings: Iterable[Finding], ascii_only: bool) -> Iterable[Line]:
    before = ""
    for each in findings:
        sign, style = SIGNS[each.level]
        topic = each.topic if each.topic != before else ""
        before = each.topic
        yield [(ASCII[each.level] if ascii_only else sign, style), (f" {topic:<16}", "dim"), (each.text, "")]
        if each.to_do:
            yield [(f"{'':<18}to do: {each.to_do}", "")]


def _verdict(broken: int, warnings: int) -> str:
    if broken:
        return f"{broken} {'promises' if broken > 1 else 'promise'} can't be kept"
    if warnings:
        return f"the promises can be kept; {warnings} {'warnings' if warnings > 1 else 'warning'}"
    return "the promises can be kept"
