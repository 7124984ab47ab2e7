"""Prometheus' own tool on the alert rules: they can be read, and each fires when it should and only then."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from system.support.prometheus import program, promtool

ROOT = Path(__file__).resolve().parents[2]
FILES = resources.files("stepwell.metrics")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as they are shipped, and their cases beside them."""
    for name in ("alerts.yml", "alerts_test.yml"):
        (tmp_path / name).write_text(FILES.joinpath(name).read_text())
    return tmp_path


def test_the_rules_can_be_read_by_prometheus(rules: Path) -> None:
    done = promtool("check", "rules", rules / "alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.pain(20, 42)
def test_each_alert_fires_when_it_should_and_not_at_the_near_miss(rules: Path) -> None:
    done = promtool("test", "rules", rules / "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_that_the_docs_show_is_valid(rules: Path) -> None:
    [shown] = re.findall(r"```text\n# prometheus.yml\n(.*?)```", (ROOT / "docs/prometheus.md").read_text(), re.DOTALL)
    (rules / "alerts.yml").rename(rules / "stepwell-alerts.yml")
    (rules / "prometheus.yml").write_text(shown)
    done = promtool("check", "config", rules / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_there_is_no_prometheus_tests_are_skipped_but_in_ci_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install prometheus"):
        program("promtool")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install prometheus"):
        program("promtool")
