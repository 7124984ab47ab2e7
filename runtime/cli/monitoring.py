"""`alerts` and `dashboard`: what Prometheus and Grafana need to watch workers."""

from __future__ import annotations

import difflib
import re
from importlib import resources
from typing import Annotated

import typer

from stepwell.cli.session import Json, Verbose, session
from stepwell.core.errors import UsageError

__all__ = ["add_to", "alerts", "dashboard"]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(
        epilog="Examples:\n\nstepwell alerts > /etc/prometheus/stepwell.yml\n\n"
        "stepwell alerts --explain StepwellRetryStorm"
    )(alerts)
    app.command(epilog="Examples:\n\nstepwell dashboard > stepwell.json")(dashboard)


def alerts(
    context: typer.Context,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="ALERT", help="What that alert means and what to do.")
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print alert rules for Prometheus, a file for its `rule_files`; or what to do about one of them."""
    own = session(context)
    if explain is not None:
        text = _explained(explain)
        own.answer_json({"alert": explain, "text": text}) if own.json else own.answer(text)
        return
    text = _shipped("alerts.yml")
    if own.json:
        own.answer_json({"alerts": text})
    else:
        own.answer(text.rstrip("\n"))


def dashboard(context: typer.Context, json: Json = False, verbose: Verbose = False) -> None:
    """Print the Grafana dashboard, JSON to import there."""
    session(context).answer(_shipped("dashboards/stepwell.json").rstrip("\n"))


def _explained(alert: str) -> str:
    """What the page of alerts says of it, with its heading."""
    sections = re.split(r"^(?=## )", _shipped("alerts.md"), flags=re.MULTILINE)
    pages = {each.partition("\n")[0].removeprefix("## "): each.strip() for each in sections[1:]}
    named = {name.lower(): page for name, page in pages.items()}.get(alert.lower())
    if named is None:
        close = difflib.get_close_matches(alert, pages, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else "`stepwell alerts` prints them all"
        raise UsageError(f"there is no alert {alert!r}: {hint}")
    return _plain(named)


def _plain(page: str) -> str:
    """Without the marks of Markdown: panels, which the page has in italics, in quotes, links as their texts. Commands
    stay in backticks."""
    page = page.removeprefix("## ")
    page = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", page)
    page = re.sub(r"\*(page|ticket)\.\*", r"\1.", page)
    return re.sub(r"\*([^*]+)\*", r'"\1"', page)


def _shipped(file: str) -> str:
    return resources.files("stepwell.metrics").joinpath(file).read_text(encoding="utf-8")
