"""Prometheus' own tool on the alert rules: they can be read, and each fires when it should and only then."""

from __future__ import annotations

import json
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


SHOWN = re.findall(r"```text\n# prometheus.yml\n(.*?)```", (ROOT / "docs/prometheus.md").read_text(), re.DOTALL)


# Debian builds Prometheus without Kubernetes: a file tells of the pods instead.
PODS = [
    {"targets": [f"10.0.0.7:{port}"], "labels": {f"__meta_kubernetes_pod_{name}": value for name, value in pod.items()}}
    for port, pod in [
        (9464, {"ip": "10.0.0.7", "name": "stepwell-0", "label_app": "stepwell", "phase": "Running"}),
        (8080, {"ip": "10.0.0.7", "name": "stepwell-0", "label_app": "stepwell", "phase": "Running"}),
        (9464, {"ip": "10.0.0.8", "name": "stepwell-1", "label_app": "stepwell", "phase": "Failed"}),
        (9464, {"ip": "10.0.0.9", "name": "other-0", "label_app": "other", "phase": "Running"}),
    ]
]


def test_pods_of_workers_are_found_as_the_docs_show(rules: Path) -> None:
    (rules / "alerts.yml").rename(rules / "stepwell-alerts.yml")
    (rules / "pods.json").write_text(json.dumps(PODS))
    [shown] = [each for each in SHOWN if "kubernetes" in each]
    without = shown.replace("kubernetes_sd_configs:\n      - role: pod", "file_sd_configs:\n      - files: [pods.json]")
    (rules / "prometheus.yml").write_text(without)
    for patience in ("1s", "60s"):  # it looks for so long, and a busy machine may not have come to the file by then
        done = promtool("check", "service-discovery", rules / "prometheus.yml", "stepwell", "--timeout", patience)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [each.get("labels") or {} for each in json.loads(done.stdout) or ()]
        places = {(each["__address__"], each["instance"]) for each in found if "__address__" in each}
        if found:
            break
    assert places == {("10.0.0.7:9464", "stepwell-0")}


@pytest.mark.parametrize("shown", [each for each in SHOWN if "kubernetes" not in each], ids=["static", "file"])
def test_a_configuration_that_the_docs_show_is_valid(rules: Path, shown: str) -> None:
    (rules / "alerts.yml").rename(rules / "stepwell-alerts.yml")
    (rules / "stepwell-workers.yml").write_text('- targets: ["worker-1:9464", "worker-2:9464"]')
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
