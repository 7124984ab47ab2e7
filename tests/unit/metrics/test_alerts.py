"""The alert rules name only what the workers show, each has its cases and its page."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.metrics.promql import problems_of

ROOT = Path(__file__).resolve().parents[3]
FILES = resources.files("stepwell.metrics")
GROUPS = yaml.safe_load(FILES.joinpath("alerts.yml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
CASES = yaml.safe_load(FILES.joinpath("alerts_test.yml").read_text())["tests"]
SETS = re.compile(r"\b(?:absent|unless|on|or|count)\b|== 0| - sum ")
"""What may mix up one job's series with another's."""
WORDS = {"flow": "FLOW", "step": "STEP", "durability": "MODE"}
"""What stands on the page where an alert has its labels."""
WANTED = {
    "StepwellRetryStorm",
    "StepwellBudgetExhausted",
    "StepwellRetriesLate",
    "StepwellRetryOverdue",
    "StepwellInboxStuck",
    "StepwellCommitsFenced",
    "StepwellDeadLetters",
    "StepwellShardCrashLoop",
    "StepwellGuaranteeWeak",
    "StepwellWorkerDown",
    "StepwellNoWorker",
    "StepwellExecutionsParked",
    "StepwellRedisTrouble",
}


def cases_of(alert: str) -> tuple[int, int]:
    """How often an alert is expected to fire, and not to."""
    counted: dict[bool, int] = defaultdict(int)
    for case in CASES:
        for test in case.get("alert_rule_test", ()):
            if test["alertname"] == alert:
                counted[bool(test.get("exp_alerts"))] += 1
    return counted[True], counted[False]


def test_what_an_operator_must_be_told_has_an_alert() -> None:
    assert set(ALERTS) >= WANTED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert", rule.get("record")))
def test_a_rule_names_only_metrics_labels_and_values_that_there_are(rule: dict[str, Any]) -> None:
    assert problems_of(rule["expr"], RECORDED) == []


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert["alert"])
def test_an_alert_keeps_jobs_apart(alert: dict[str, Any]) -> None:
    groups = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", alert["expr"])
    assert [group for group in groups if "job" not in re.findall(r"\w+", group)] == []
    assert not re.search(r"\b(?:without|ignoring|group_left|group_right)\b", alert["expr"])
    aggregated = re.findall(r"\b(?:sum|min|max|avg|count|topk)\b(?!\s+by\b)", alert["expr"])
    assert not aggregated, "over all jobs"


@pytest.mark.parametrize("alert", [name for name, alert in ALERTS.items() if SETS.search(alert["expr"])])
def test_what_compares_series_has_a_case_with_two_jobs(alert: str) -> None:
    jobs = [
        {job for series in case["input_series"] for job in re.findall(r'job="([^"]*)"', series["series"])}
        for case in CASES
        if f"'{alert}'" in repr(case) or f'"{alert}"' in repr(case)
    ]
    assert max(map(len, jobs), default=0) >= 2, "one job might mask or trigger another"


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_where_how_much_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "command", "runbook"}
    assert "$value" in notes["description"] or "$labels" in notes["description"] or "absent(" in alert["expr"]
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", alert["expr"]))))
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(notes.values())))
    assert told <= kept or not kept, "a label that the expression does not keep would be told as nothing"


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert["alert"])
def test_the_page_of_an_alert_exists(alert: dict[str, Any]) -> None:
    command, _, place = alert["annotations"]["runbook"].partition(", or ")
    assert command == f"stepwell alerts --explain {alert['alert']}"
    page, _, anchor = place.partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert["alert"])
def test_what_an_alert_says_is_to_be_run_is_on_its_page(alert: dict[str, Any]) -> None:
    command = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: WORDS[label[1]], alert["annotations"]["command"])
    _, page = (ROOT / "docs/alerts.md").read_text().split(f"\n## {alert['alert']}\n")
    assert f"`{command}`" in " ".join(page.partition("\n## ")[0].split())


def test_the_page_tells_of_no_alert_that_does_not_exist() -> None:
    named = set(re.findall(r"\bStepwell[A-Z]\w+", (ROOT / "docs/alerts.md").read_text()))
    assert named == set(ALERTS)


def test_panels_that_the_page_sends_people_to_are_on_the_dashboard() -> None:
    shown = json.loads((ROOT / "metrics/dashboards/stepwell.json").read_text())
    named = re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", (ROOT / "docs/alerts.md").read_text())
    assert {" ".join(each.split()) for each in named} <= {panel["title"] for panel in shown["panels"]}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_cases_in_which_it_fires_and_in_which_it_does_not(alert: str) -> None:
    fires, rests = cases_of(alert)
    assert fires >= 1
    assert rests >= 2, "before, and after or at a near miss"


def test_cases_name_only_metrics_labels_and_values_that_there_are() -> None:
    named = {series["series"] for case in CASES for series in case["input_series"]}
    assert [problem for series in sorted(named) for problem in problems_of(series, RECORDED)] == []
