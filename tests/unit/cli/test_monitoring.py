"""What `alerts` and `dashboard` print."""

from __future__ import annotations

import json
from importlib import resources

import pytest
import yaml

from stepwell.cli import main


def test_alerts_are_printed_as_prometheus_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts"]) == 0
    printed = capsys.readouterr().out
    assert printed == resources.files("stepwell.metrics").joinpath("alerts.yml").read_text()
    assert yaml.safe_load(printed)["groups"]
    assert main(["alerts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"alerts": printed}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_dashboard_is_printed_as_grafana_imports_it(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    kept = resources.files("stepwell.metrics").joinpath("dashboards/stepwell.json").read_text()
    assert main(["dashboard", *options]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(kept)
