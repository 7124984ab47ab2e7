"""A real Prometheus scrapes a worker of two shards; it is asked for what a receiver saw and what the rows say.

One worker, one load, one Prometheus for all tests here: they look at what was stored before, amid, and after it.
"""

from __future__ import annotations

import json
import math
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from system.support.load import AWAITED, HELD, HERE, PLANS, RESTED, Load
from system.support.processes import Processes, eventually
from system.support.prometheus import JOB, Prometheus, Series, address_of, promtool
from system.support.stage import CLOCK_MOVES_MS, Stage, WorkerProcess
from system.support.told import ToldReceiver
from tally.numbers import Tally
from tally.rows import lateness_of, tally_of

from stepwell.core.records import decode_attempt
from stepwell.metrics import instruments as i

FILES = resources.files("stepwell.metrics")
DASHBOARD = json.loads(FILES.joinpath("dashboards/stepwell.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(f"{panel['title']} {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]]
ASKED_IN_DOCS = re.findall(
    r"(?m)^    (\S.*(?:\n      .*)*)", (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
)
# What Grafana puts in for "all", and windows that reach back to the load's begin, however slow the machine is.
CHOSEN = {
    "$job": ".*",
    "$instance": ".*",
    "$flow": ".*",
    "$__rate_interval": "10m",
    "$__range_s": "3600",
    "$__range": "1h",
}
MARKED = [each for each in i.INSTRUMENTS if each.exemplars]
EXHAUSTED = "StepwellBudgetExhausted"
AMID = {
    'sum(stepwell_executions{status!="error"})': HELD + RESTED + AWAITED + 1,
    'sum(stepwell_executions{status="parked"})': 1,
    "sum(stepwell_executions_backing_off)": RESTED,
    "count(stepwell_retry_next_due_timestamp_seconds)": 1,
    "sum(stepwell_steps_running)": HELD,
    "sum(stepwell_dead_letters)": 1,
}
"""What levels are in the middle of it, when they have been counted again."""
CLOCKS_S = 0.25  # two clocks of one host
LEVELS = (
    'sum(stepwell_executions{status!="error"})',
    "sum(stepwell_executions_backing_off)",
    "sum(stepwell_executions_waiting)",
    "sum(stepwell_steps_running)",
    "sum(stepwell_quarantined_steps)",
    "sum(stepwell_suspects)",
    "sum(stepwell_dead_letters)",
    "sum(stepwell_inbox_length)",
    "sum(stepwell_mailbox_messages)",
    "sum(stepwell_abandoned_threads)",
)


@dataclass(frozen=True)
class Observed:
    """What there is when all is over: who was asked, what was told, and what Prometheus said at three moments."""

    prometheus: Prometheus
    worker: WorkerProcess
    receiver: ToldReceiver
    rows: dict[str, dict[str, bytes]]
    known: Tally
    before: dict[str, Series]
    amid: dict[str, Series]
    after: dict[str, Series]
    amid_s: tuple[float, float]
    fired: set[str]
    exhausted: Counter[Any]


def asked_for(promql: str) -> str:
    """A panel's query as Grafana would send it."""
    for name, value in CHOSEN.items():
        promql = promql.replace(name, value)
    return promql


def rules_for_now() -> str:
    """The rules as they are shipped, but what must last to be told never does: how long this takes is the machine's."""
    shipped = yaml.safe_load(FILES.joinpath("alerts.yml").read_text())
    for group in shipped["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1d"
    return json.dumps(shipped)  # JSON is YAML


def shown(prometheus: Prometheus) -> dict[str, Series]:
    """Answers to all that the dashboard asks, and by level."""
    queries = {promql: asked_for(promql) for _, promql in QUERIES}
    queries |= {promql: promql for promql in (*AMID, *LEVELS, *ASKED_IN_DOCS)}
    return {name: prometheus.query(promql) for name, promql in queries.items()}


def answer(observed: Observed, title: str) -> Series:
    """What the first query of a panel was answered when all was over."""
    [promql] = [promql for name, promql in QUERIES if name == f"{title} A"]
    return observed.after[promql]


def at_first(prometheus: Prometheus) -> dict[str, Series]:
    """What there is of metrics whose labels are known beforehand."""
    names = {f"{each.full_name}{'_count' if each.bounds else ''}" for each, _ in i.closed_series()}
    known = (i.EXECUTIONS_ENDED, i.STEP_FAILURES, i.STEP_RETRIES_SCHEDULED)
    return {name: prometheus.query(name) for name in (*names, *(each.full_name for each in known))}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observed")
    rules = folder / "alerts.yml"
    rules.write_text(rules_for_now())
    processes = Processes(folder)
    stage = Stage(processes, folder)
    prometheus = Prometheus(processes, folder / "prometheus", eventually)
    try:
        with ToldReceiver() as receiver:
            load = Load(stage, receiver)
            worker = load.start_worker()
            prometheus.start([address_of(worker)], [rules])
            prometheus.wait_for_targets()
            load.settle(prometheus)
            load.lose_a_shard(prometheus)
            prometheus.wait_for_scrape()
            before = at_first(prometheus)
            load.begin()
            prometheus.wait_until_all(AMID)
            began_s = time.time()
            amid, amid_s = shown(prometheus), (began_s, time.time())
            load.end()
            prometheus.wait_until_all(dict.fromkeys(LEVELS, 0))
            prometheus.wait_for_scrape()
            after = shown(prometheus)
            # Later it would be over, or nobody's fault: counts of the last minutes are what alerts look at.
            eventually(lambda: EXHAUSTED in firing(prometheus), "the alert fires that should")
            prometheus.wait_for_rules()
            fired = firing(prometheus)
            exhausted = counted(prometheus, ("flow", "step"), f'ALERTS{{alertname="{EXHAUSTED}"}}')
            rows = load.rows()
            known = tally_of(rows, HERE)
            known.add(lateness_of(rows.values(), CLOCK_MOVES_MS))
            yield Observed(prometheus, worker, receiver, rows, known, before, amid, after, amid_s, fired, exhausted)
        prometheus.stop()
    finally:
        stage.end()
        processes.end()


def counted(prometheus: Prometheus, labels: tuple[str, ...], promql: str) -> Counter[Any]:
    """An answer by these labels, in their order; what is 0 is left out."""
    answer = prometheus.query(f"sum by ({', '.join(labels)}) ({promql})")
    by_labels = {tuple(dict(series)[label] for label in labels): value for series, value in answer.items()}
    assert all(value == int(value) for value in by_labels.values())
    return Counter({key: int(value) for key, value in by_labels.items() if value})


def values_of(observed: Observed, instrument: i.Instrument) -> list[float]:
    """All that a histogram should hold, by the rows."""
    return [value for values in observed.known.values[instrument].values() for value in values]


def check_spread(observed: Observed, instrument: i.Instrument, unknown: int = 0) -> None:
    """A histogram has the values of the rows, and some that nobody else knows: as many, their sum, and quantiles within
    the buckets of the true ones."""
    values = values_of(observed, instrument)
    name, prometheus = instrument.full_name, observed.prometheus
    assert prometheus.value(f"sum({name}_count)") == len(values) + unknown
    total = prometheus.value(f"sum({name}_sum)")
    # They may all have been 0, on a quick machine; and who adds up in another order gets another last digit.
    assert total == pytest.approx(sum(values), abs=1e-6) if not unknown else total >= sum(values) - 1e-6
    for share in (0.5, 0.9, 1.0):
        told = prometheus.value(f"histogram_quantile({share}, sum by (le) ({name}_bucket))")
        lowest = bucket_of(instrument, quantile(share, [0.0] * unknown + sorted(values)))[0]
        highest = bucket_of(instrument, quantile(share, sorted(values) + [math.inf] * unknown))[1]
        assert lowest <= told <= highest, (name, share)


def quantile(share: float, ordered: list[float]) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]


def bucket_of(instrument: i.Instrument, value: float) -> tuple[float, float]:
    """Between which bounds a value lies. Of what lies above all bounds only that is known: the last one is told."""
    bounds = (0.0, *instrument.bounds)
    upper = min(max(1, bisect_left(bounds, value)), len(bounds) - 1)
    return (bounds[-1], bounds[-1]) if value > bounds[-1] else (bounds[upper - 1], bounds[upper])


def firing(prometheus: Prometheus) -> set[str]:
    """The alerts that fire now."""
    return {name for name, state in prometheus.alerts().items() if state == "firing"}


@pytest.mark.pain(20)
def test_what_can_be_known_beforehand_is_there_with_nothing_counted(observed: Observed) -> None:
    for instrument, values in i.closed_series():
        of = observed.before[f"{instrument.full_name}{'_count' if instrument.bounds else ''}"]
        labels = frozenset(zip((label.name for label in instrument.labels), values, strict=True))
        assert labels in of
    ended = set(observed.before["stepwell_executions_total"])
    assert {frozenset({("flow", flow), ("status", "error")}) for flow, *_ in PLANS} <= ended
    failed = set(observed.before["stepwell_step_failures_total"])
    assert {frozenset({("flow", "asked"), ("step", "call"), ("reason", "budget")})} <= failed
    for name in (
        "stepwell_dead_letters_total",
        "stepwell_step_failures_total",
        "stepwell_step_retries_scheduled_total",
        "stepwell_executions_total",
        "stepwell_fenced_commits_total",
        "stepwell_commands_total",
    ):
        assert set(observed.before[name].values()) == {0}


@pytest.mark.pain(20)
def test_every_attempt_that_the_receiver_saw_is_counted_once(observed: Observed) -> None:
    receiver = observed.receiver
    assert counted(observed.prometheus, ("flow", "step"), "stepwell_step_attempts_total") == receiver.attempts
    outcomes = counted(observed.prometheus, ("outcome",), "stepwell_step_attempts_total")
    assert outcomes["ok",] == receiver.did("ok", "hold")
    assert outcomes["timeout",] == receiver.did("hang")
    assert outcomes["interrupted",] == 0


@pytest.mark.pain(20)
def test_attempts_retries_and_failures_are_counted_as_the_rows_have_them(observed: Observed) -> None:
    attempts, scheduled, failures = (
        observed.known.counts[each] for each in (i.STEP_ATTEMPTS, i.STEP_RETRIES_SCHEDULED, i.STEP_FAILURES)
    )
    assert counted(observed.prometheus, ("flow", "step", "outcome"), "stepwell_step_attempts_total") == attempts
    assert (
        counted(observed.prometheus, ("flow", "step", "reason"), "stepwell_step_retries_scheduled_total") == scheduled
    )
    assert counted(observed.prometheus, ("flow", "step", "reason"), "stepwell_step_failures_total") == failures
    assert {reason for *_, reason in failures} == {"budget", "fatal", "deadline", "payload"}
    assert {reason for *_, reason in scheduled} == {"error", "timeout", "crash", "retry_after"}


def test_every_end_of_an_execution_is_counted(observed: Observed) -> None:
    ended = observed.known.counts[i.EXECUTIONS_ENDED]
    assert counted(observed.prometheus, ("flow", "status"), "stepwell_executions_total") == ended
    assert observed.prometheus.value("sum(stepwell_execution_duration_seconds_count)") == sum(ended.values())


def test_histograms_say_what_the_rows_say_within_a_bucket(observed: Observed) -> None:
    check_spread(observed, i.RETRY_BACKOFF)
    # Four were begun by hand, and were due when that was asked for.
    check_spread(observed, i.RETRY_LATENESS, unknown=4)
    check_spread(observed, i.STEP_DURATION)
    check_spread(observed, i.STEP_ATTEMPTS_TO_SUCCESS)


def test_it_is_told_what_ended_each_backoff(observed: Observed) -> None:
    woken = counted(observed.prometheus, ("source",), "stepwell_retry_wakeups_total")
    assert woken == {("timer",): len(values_of(observed, i.RETRY_LATENESS)), ("manual",): 2}
    assert counted(observed.prometheus, ("reason",), "stepwell_backoffs_abandoned_total") == {("cancel",): 2}


def test_commands_letters_and_parked_executions_are_counted(observed: Observed) -> None:
    commands = counted(observed.prometheus, ("verb", "outcome"), "stepwell_commands_total")
    assert commands == {("retry", "applied"): 4, ("cancel", "applied"): 3, ("signal", "applied"): 3}
    assert counted(observed.prometheus, ("verb",), "stepwell_ingress_total") == {("start",): 1}
    assert sum(counted(observed.prometheus, ("reason",), "stepwell_dead_letters_total").values()) == 1
    assert counted(observed.prometheus, ("flow", "reason"), "stepwell_executions_parked_total") == {
        ("other", "not deployed here"): 1
    }


def test_levels_rise_and_are_0_again(observed: Observed) -> None:
    assert {level: observed.amid[level] for level in AMID} == {
        level: {frozenset(): value} for level, value in AMID.items()
    }
    # Each was seen at 0 when all had ended; of messages some come all the time.
    lasting = [level for level in LEVELS if "messages" not in level]
    assert {level: observed.after[level] for level in lasting} == {level: {frozenset(): 0.0} for level in lasting}
    assert observed.prometheus.query("stepwell_retry_next_due_timestamp_seconds") == {}


def test_the_next_retry_is_due_when_the_row_says_so(observed: Observed) -> None:
    [promql] = [promql for title, promql in QUERIES if title == "Next retry in A"]
    [seconds] = observed.amid[promql].values()
    attempts = [
        decode_attempt(raw) for row in observed.rows.values() for name, raw in row.items() if name.startswith("a:")
    ]
    due_s = min(each.due_at for each in attempts if each.due_at and each.due_at - each.ended_at >= 3_600_000) / 1000
    began_s, ended_s = observed.amid_s
    assert due_s - ended_s - CLOCKS_S <= seconds <= due_s - began_s + CLOCKS_S


@pytest.mark.pain(20)
def test_what_is_counted_over_the_time_shown_has_the_first_of_each_series_too(observed: Observed) -> None:
    counts = observed.known.counts
    at_last = Counter(
        flow for (flow, _), left in observed.known.values[i.STEP_ATTEMPTS_LEFT].items() for n in left if n <= 1
    )
    used_up = Counter(flow for flow, _, reason in counts[i.STEP_FAILURES].elements() if reason == "budget")
    assert answer(observed, "Budgets used up") == {frozenset(): used_up.total()}
    assert answer(observed, "Last attempts") == {frozenset(): at_last.total()}
    ends = answer(observed, "Whose budgets end")
    for what, truth in (("last attempt", at_last), ("used up", used_up)):
        shown = Counter({dict(labels)["flow"]: 0 for labels in ends})
        for labels, value in ends.items():
            if dict(labels)["what"] == what:
                shown[dict(labels)["flow"]] += int(value)
        assert +shown == truth
    retries = {
        frozenset(zip(("flow", "step", "reason"), labels, strict=True)): count
        for labels, count in counts[i.STEP_RETRIES_SCHEDULED].items()
    }
    assert answer(observed, "Steps with the most retries") == retries
    [longest] = answer(observed, "Longest delay").values()
    assert longest >= max(values_of(observed, i.RETRY_BACKOFF)) or longest == i.RETRY_BACKOFF.bounds[-1]


def test_jobs_workers_and_flows_can_be_chosen_those_that_ran_nothing_too(observed: Observed) -> None:
    offered = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            [(selector, label)] = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"]["query"])
            offered[variable["name"]] = observed.prometheus.values_of(label, asked_for(selector))
    assert offered == {"job": {JOB}, "instance": {address_of(observed.worker)}, "flow": {*HERE, "other"}}


def test_panels_that_ask_for_examples_get_them_where_there_are_any(observed: Observed) -> None:
    """Each count has one, and each histogram of which a slow bucket holds something: which do is the machine's."""
    shown, empty = set(), set()
    for promql in {target["expr"] for panel in PANELS for target in panel["targets"] if target.get("exemplar")}:
        [instrument] = [each for each in MARKED if re.search(rf"\b{each.full_name}(_bucket)?\b", promql)]
        found = observed.prometheus.exemplars(asked_for(promql))
        assert bool(found) == bool(exemplified(observed, instrument)), promql
        (shown if found else empty).add(instrument)
    # What backs off for an hour and what hangs are slow anywhere.
    assert shown >= {i.STEP_ATTEMPTS, i.STEP_RETRIES_SCHEDULED, i.STEP_FAILURES, i.RETRY_BACKOFF, i.STEP_DURATION}
    assert empty <= {i.STEP_QUEUE, i.RETRY_LATENESS, i.EXECUTION_DURATION}


def exemplified(observed: Observed, instrument: i.Instrument) -> float:
    """How much was counted of what leaves exemplars."""
    name = instrument.full_name
    if not instrument.bounds:
        return observed.prometheus.value(f"sum({name})")
    quick = float(instrument.bounds[(len(instrument.bounds) + 1) // 2 - 1])
    return observed.prometheus.value(f'sum({name}_count) - sum({name}_bucket{{le="{quick}"}})')


def test_openmetrics_was_agreed_upon_and_brings_examples(observed: Observed) -> None:
    # Only there the name of a counter's family lacks the suffix.
    assert observed.prometheus.metadata()["stepwell_step_attempts"]["type"] == "counter"
    assert "stepwell_step_attempts_total" not in observed.prometheus.metadata()
    found = observed.prometheus.exemplars("stepwell_step_retries_scheduled_total")
    assert found
    for labels, exemplar in found:
        name = exemplar["labels"]["execution"]
        retries = tally_of({name: observed.rows[name]}, HERE).counts[i.STEP_RETRIES_SCHEDULED]
        assert labels["flow"] in {flow for flow, *_ in retries}
    slow = observed.prometheus.exemplars("stepwell_step_duration_seconds_bucket")
    assert {labels["le"] for labels, _ in slow}, "slow buckets have examples"


def test_nothing_is_said_twice_or_out_of_order(observed: Observed) -> None:
    observed.prometheus.wait_for_targets()
    assert "out of order" not in observed.prometheus.log.lower()
    assert "duplicate" not in observed.prometheus.log.lower()


def test_prometheus_own_tool_has_nothing_against_the_page(observed: Observed) -> None:
    done = promtool("check", "metrics", given=observed.worker.page("metrics")[1])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_of_the_dashboard_shows_something(observed: Observed) -> None:
    assert len(QUERIES) > 60
    assert [title for title, promql in QUERIES if not observed.amid[promql] and not observed.after[promql]] == []


@pytest.mark.parametrize("promql", ASKED_IN_DOCS)
def test_a_question_of_the_docs_has_an_answer(observed: Observed, promql: str) -> None:
    assert observed.amid[promql] or observed.after[promql]


def test_rules_can_be_evaluated_and_tell_of_what_happened_and_nothing_else(observed: Observed) -> None:
    rules = observed.prometheus.rules()
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    assert observed.fired == {EXHAUSTED}, "all else has to last"
    failures = observed.known.counts[i.STEP_FAILURES]
    assert observed.exhausted == {(flow, step): 1 for flow, step, reason in failures if reason == "budget"}
