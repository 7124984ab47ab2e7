"""A real Prometheus that scrapes workers, and its answers. Debian's package brings it, and promtool."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from system.support.programs import Program, on_path
from system.support.stage import HANG_SECONDS, Eventually, WorkerProcess

from benchmarks.ports import free_port

# Every scrape stores its time beside what it read, so that an answer tells which scrape it comes from.
# A worker that has no processor to itself takes its time, and a page that comes too late is none.
INTERVAL = "1s"
JOB = "stepwell"

Series = dict[frozenset[tuple[str, str]], float]
"""Values by labels, without the name and without what the scrape adds (job, instance)."""


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Skips the test where there is none; in CI that fails it."""
    return on_path(name, "prometheus")


def promtool(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    command = [program("promtool"), *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)


class Prometheus:
    """One server with data of its own; it scrapes each worker once a second."""

    def __init__(self, processes: Any, folder: Path, eventually: Eventually) -> None:
        self._processes = processes
        self._folder = folder
        self._eventually = eventually
        self._program: Program
        self.url = f"http://127.0.0.1:{free_port()}"
        folder.mkdir()

    def start(self, workers: Iterable[str], rules: Iterable[Path] = ()) -> Prometheus:
        """Start it on workers' addresses (`host:port`) and files of rules, and wait until it answers.

        It looks for its targets first 5 s after that.
        """
        config = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [str(file) for file in rules],
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(workers)}]}],
        }
        file = self._folder / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        command = [
            program("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--enable-feature=exemplar-storage",
        ]
        self._program = Program(command, self._folder / "log", self._processes.start)
        self._eventually(self._is_ready, "Prometheus is ready")
        return self

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._program.process.terminate()
        self._program.process.wait(HANG_SECONDS)

    @property
    def log(self) -> str:
        """What it has said."""
        return self._program.log.read_text()

    # Waiting.

    def wait_for_targets(self) -> None:
        """Until it has scraped each of its targets well."""

        def all_up() -> bool:
            targets = self.targets()
            return bool(targets) and all(target["health"] == "up" for target in targets)

        self._eventually(all_up, "Prometheus has scraped all targets")

    def wait_for_scrape(self) -> None:
        """Until what is stored was read from every target after now: what is asked next sees all that was before."""
        now = time.time()

        def all_newer() -> bool:
            answer = self._get("query", query=f'timestamp(up{{job="{JOB}"}})')["result"]
            return bool(answer) and all(float(each["value"][1]) > now for each in answer)

        self._eventually(all_newer, "Prometheus has scraped all targets again")

    def wait_for_rules(self) -> None:
        """Until each rule was evaluated once more, which reads what is stored by now."""
        now = time.time()

        def all_newer() -> bool:
            rules = self.rules()
            return bool(rules) and all(evaluated_at(rule) > now for rule in rules)

        self._eventually(all_newer, "Prometheus has evaluated all rules again")

    def wait_until(self, promql: str, value: float) -> None:
        """Until a query that has one answer has this one, as levels that are counted every few seconds will."""
        self.wait_until_all({promql: value})

    def wait_until_all(self, values: Mapping[str, float]) -> None:
        """Until queries that have one answer each have these, all at one look: one alone may be right by chance, as two
        shards count at different times."""

        def shown() -> dict[str, float | None]:
            return {promql: self.query(promql).get(frozenset()) for promql in values}

        self._eventually(lambda: shown() == values, f"these are so: {values}")

    # Answers.

    def query(self, promql: str) -> Series:
        """What a query that answers an instant vector says now; NaN is left out, as nothing can be said of it."""
        data = self._answer(promql)
        assert data["resultType"] in ("vector", "scalar"), data["resultType"]
        if data["resultType"] == "scalar":
            return {frozenset(): float(data["result"][1])}
        series = {_labels(each["metric"]): float(each["value"][1]) for each in data["result"]}
        assert len(series) == len(data["result"]), f"{promql}: several targets have the same series; sum them up"
        return {labels: value for labels, value in series.items() if not math.isnan(value)}

    def _answer(self, promql: str) -> Any:
        """What it says of a moment at which it had all targets' pages: where one came too late it knows nothing."""
        found: list[Any] = []

        def well() -> bool:
            at = f"{time.time():.3f}"
            asked = (f'min(up{{job="{JOB}"}}) == 1', promql, f'min(up{{job="{JOB}"}}) == 1')
            before, answer, after = (self._get("query", query=query, time=at) for query in asked)
            found.append(answer)
            return bool(before["result"] and after["result"])

        self._eventually(well, f"all targets are up, to ask for {promql}")
        return found[-1]

    def value(self, promql: str) -> float:
        """What a query with one answer says now."""
        [value] = self.query(promql).values()
        return value

    def by(self, label: str, promql: str) -> dict[str, float]:
        """What a query says now, by one label, which is the only one that its answers have."""
        return {dict(labels)[label]: value for labels, value in self.query(f"sum by ({label}) ({promql})").items()}

    def values_of(self, label: str, selector: str) -> set[str]:
        """The values that a label has in the series that a selector names."""
        return set(self._get(f"label/{label}/values", **{"match[]": selector}))

    def exemplars(self, selector: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
        """All exemplars of the series that a selector names, each with its series' labels."""
        now = time.time()
        found = self._get("query_exemplars", query=selector, start=str(now - 3600), end=str(now + 60))
        return [(series["seriesLabels"], each) for series in found for each in series["exemplars"]]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, and how that goes: `health`, `lastError`, `lastScrapeDuration`."""
        found: list[dict[str, Any]] = self._get("targets", state="active")["activeTargets"]
        return found

    def metadata(self) -> dict[str, dict[str, Any]]:
        """What the pages said of each metric: `type`, `help`, `unit`, by the name that the format gives it."""
        return {each["metric"]: each for each in self._get("targets/metadata")}

    def alerts(self) -> dict[str, str]:
        """State of each alert that is pending or firing, by its name."""
        return {each["labels"]["alertname"]: each["state"] for each in self._get("alerts")["alerts"]}

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their `health`, `lastError` and `query`, as it has read them."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def series(self) -> int:
        """How many series it keeps of the workers' own metrics."""
        return int(self.value(f'count({{__name__=~"stepwell_.+", job="{JOB}"}})'))

    def _is_ready(self) -> bool:
        self._program.require_running()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=HANG_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=HANG_SECONDS) as answer:
                data = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert data["status"] == "success", data
        return data["data"]


def evaluated_at(rule: dict[str, Any]) -> float:
    """When a rule was evaluated last, seconds since the epoch."""
    return datetime.fromisoformat(rule["lastEvaluation"]).timestamp()


def address_of(worker: WorkerProcess) -> str:
    """Where a worker shows its metrics, as Prometheus wants it."""
    found = re.search(r"metrics http://localhost:(\d+)/metrics", worker.out)
    assert found, worker.out
    return f"127.0.0.1:{found[1]}"


def _labels(metric: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in metric.items() if name not in ("__name__", "job", "instance"))
