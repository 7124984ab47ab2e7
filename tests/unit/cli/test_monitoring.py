"""What `alerts` and `dashboard` print."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

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


def test_what_to_do_about_an_alert_is_printed_from_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "--explain", "stepwellretrystorm"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("StepwellRetryStorm\n\npage. For 5 minutes ")
    assert '"Steps with the most retries" says' in " ".join(printed.split())
    assert printed.endswith("see StepwellBudgetExhausted.\n")
    assert main(["alerts", "--explain", "StepwellRetryStorm", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"alert": "StepwellRetryStorm", "text": printed.rstrip("\n")}


def test_no_marks_of_markdown_but_backticks_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/alerts.md").read_text()
    for alert in re.findall(r"^## (\w+)$", page, re.MULTILINE):
        assert main(["alerts", "--explain", alert]) == 0
        printed = capsys.readouterr().out
        assert not re.search(r"[*#]|\]\(", printed), alert
        _, told = page.split(f"\n## {alert}\n")
        assert re.findall("`[^`]+`", printed) == re.findall("`[^`]+`", told.partition("\n## ")[0])


def test_an_alert_that_there_is_not_is_refused_with_a_close_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "--explain", "RetryStorm"]) == 2
    assert "did you mean StepwellRetryStorm?" in capsys.readouterr().err
