"""`alerts` and `dashboard`: what Prometheus and Grafana need to watch workers."""

from __future__ import annotations

from importlib import resources

import typer

from stepwell.cli.session import Json, Verbose, session

__all__ = ["add_to", "alerts", "dashboard"]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(epilog="Examples:\n\nstepwell alerts > /etc/prometheus/stepwell.yml")(alerts)
    app.command(epilog="Examples:\n\nstepwell dashboard > stepwell.json")(dashboard)


def alerts(context: typer.Context, json: Json = False, verbose: Verbose = False) -> None:
    """Print alert rules for Prometheus, a file for its `rule_files`."""
    own, text = session(context), _shipped("alerts.yml")
    if own.json:
        own.answer_json({"alerts": text})
    else:
        own.answer(text.rstrip("\n"))


def dashboard(context: typer.Context, json: Json = False, verbose: Verbose = False) -> None:
    """Print the Grafana dashboard, JSON to import there."""
    session(context).answer(_shipped("dashboards/stepwell.json").rstrip("\n"))


def _shipped(file: str) -> str:
    return resources.files("stepwell.metrics").joinpath(file).read_text(encoding="utf-8")
