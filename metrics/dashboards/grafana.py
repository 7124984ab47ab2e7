"""The whole dashboard: its rows, and what can be chosen above them. The JSON is of the types that Grafana publishes."""

from __future__ import annotations

import json
from itertools import count
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from stepwell.metrics.dashboards.glance import GLANCE
from stepwell.metrics.dashboards.pictures import SOURCE
from stepwell.metrics.dashboards.queries import written_out
from stepwell.metrics.dashboards.retries import RETRIES
from stepwell.metrics.dashboards.runtime import RUNTIME
from stepwell.metrics.dashboards.safety import SAFETY
from stepwell.metrics.dashboards.work import WORK

__all__ = ["ROWS", "dashboard", "text"]

ROWS: Final = (GLANCE, RETRIES, WORK, SAFETY, RUNTIME)
_ALL: Final = models.VariableOption(selected=True, text=["All"], value=["$__all"])


def dashboard() -> models.Dashboard:
    """The whole dashboard, as Grafana imports it."""
    made = (
        Dashboard("Stepwell")
        .uid("stepwell")
        .description("Flows on Stepwell: retries, work, safety, runtime.")
        .tags(["stepwell"])
        .version(1)
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_variable("job", "Job", "label_values(stepwell_build_info, job)"))
        .with_variable(_variable("instance", "Worker", 'label_values(stepwell_build_info{job=~"$job"}, instance)'))
        .with_variable(_variable("flow", "Flow", "label_values(stepwell_executions_total{WORKER}, flow)"))
    )
    for row in ROWS:
        made.with_row(Row(row.title))
        for picture in row.panels:
            made.with_panel(picture)
    whole = made.build()
    for number, panel in zip(count(1), whole.panels or ()):
        panel.id_val = number
    return whole


def text() -> str:
    """The same as it is kept: a line for each panel."""
    members = []
    for name, value in json.loads(JSONEncoder().encode(dashboard())).items():
        parts = ",\n".join(json.dumps(part) for part in value) if name == "panels" else ""
        members.append(f'"{name}": ' + (f"[\n{parts}\n]" if parts else json.dumps(value)))
    return "{\n" + ",\n".join(members) + "\n}\n"


def _variable(name: str, label: str, promql: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": written_out(promql), "refId": name})
        .current(_ALL)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
