"""What Stepwell's own parts log is found from the code: each line has its kind, its level and known fields."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from stepwell.actors import store_events as e
from stepwell.core.events import EVENTS
from stepwell.metrics import instruments as i
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter
from stepwell.metrics.instrument import Instrument
from stepwell.metrics.saying import LEVELS, Kind, say
from stepwell.metrics.telling import FIELDS
from stepwell.store.troubles import KINDS

ROOT = Path(__file__).resolve().parents[3]
SPEAKERS = {"say", "_say", "_tell_of", "_warn", "_write"}
OWN_WORDS = {"level", "traceback", "of"}
PAGE = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
OBSERVED = {kind.__name__ for kind in e.STORE_EVENTS}
ABOVE_DEBUG = {"info", "warning", "warn", "error", "exception", "critical", "fatal", "log"}
BY_THEMSELVES = {
    "metrics/logs.py": "it writes what others say: each has its event, or it tells how many lines were left out",
    "runtime/flow/driver.py": "what users write lies below metrics: it brings the event along by itself",
    "actors/kit/scheduler_base.py": "the actor machinery knows only core; a shard gives it `PartFailed` to say",
}
"""Modules that may log without `say`, and why."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("runtime", "actors", "metrics"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


MODULES = dict(modules())


def calls() -> Iterator[tuple[ast.Call, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each call by which a line is logged, and the function that makes it."""
    for module in MODULES.values():
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and last_name(call.func) in SPEAKERS:
                        yield call, function


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def logs_by_itself(call: ast.Call) -> bool:
    """Whether it is a call of a logger, at INFO or above."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ABOVE_DEBUG:
        return False
    by = call.func.value
    return "log" in last_name(by) or (isinstance(by, ast.Call) and last_name(by.func) == "getLogger")


def words_in(module: ast.Module) -> set[str]:
    """Its strings: a kind is named where its line is said, or handed to who says it."""
    return {node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_each_line_at_info_and_above_is_said_with_its_kind() -> None:
    found = {
        name
        for name, module in MODULES.items()
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and logs_by_itself(call)
    }
    assert found == set(BY_THEMSELVES)
    assert '"event": "CleanupRaised"' in (ROOT / "runtime" / "flow" / "driver.py").read_text(encoding="utf-8")


def test_each_kind_has_its_line() -> None:
    told = {word for name, module in MODULES.items() if name != "metrics/saying.py" for word in words_in(module)}
    told |= {
        last_name(node.cls)
        for node in ast.walk(MODULES["runtime/worker/shardlog.py"])
        if isinstance(node, ast.MatchClass)
    }
    assert set(LEVELS) <= told


def test_each_kind_has_one_level_and_is_no_event_of_executions() -> None:
    names = [name for level in get_args(Kind) for name in get_args(level)]
    assert len(names) == len(set(names)) == len(LEVELS)
    assert not set(LEVELS) & {kind.__name__ for kind in EVENTS}


def test_lines_have_no_field_that_the_page_does_not_explain() -> None:
    fields = {word.arg for call, _ in calls() for word in call.keywords if word.arg is not None}
    assert fields - OWN_WORDS <= set(FIELDS)
    assert len(fields) > 15


def test_who_says_something_of_an_execution_names_it_in_a_field() -> None:
    """A name in the sentence alone finds nobody."""
    for call, function in calls():
        if isinstance(call.func, ast.Name) and any("execution_id" in ast.unparse(each) for each in call.args):
            assert {"execution", "of"} & {word.arg for word in call.keywords}, ast.unparse(function)


@pytest.mark.parametrize("kind", sorted(LEVELS))
def test_a_line_has_the_name_and_the_level_of_its_kind(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    say(logging.getLogger("stepwell.x"), kind, "100 %% of %d", 3, kind="full", cause=None)
    [record] = caplog.records
    line = JsonFormatter().format(record)
    assert record.levelno == LEVELS[kind]
    assert '"message": "100 % of 3"' in line
    assert f'"kind": "full", "event": "{kind}"' in line
    assert "cause" not in line


def tables() -> dict[str, str]:
    """Of the page: each kind that is no event of executions, with its level."""
    rows: dict[str, str] = {}
    for heading in ("observation", "of shards and workers", "of their parts"):
        table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n")[0]
        found = re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)
        assert not set(rows) & {name for name, _ in found}
        rows |= dict(found)
    return rows


def test_the_page_on_logs_has_each_line_with_its_level() -> None:
    assert tables() == {kind: logging.getLevelName(level) for kind, level in LEVELS.items()}
    only_counted = PAGE.split("are only counted")[0].rsplit("\n\n", 1)[1]
    assert OBSERVED - set(LEVELS) == set(re.findall(r"`(\w+)`", only_counted))


def words_of(instrument: Instrument, label: str) -> set[str]:
    [found] = [each for each in instrument.labels if each.name == label]
    assert found.values is not None
    return set(found.values) - {"other"}


def test_causes_and_kinds_of_lines_are_those_of_the_metrics() -> None:
    assert words_of(i.REDIS_ERRORS, "kind") == set(KINDS)
    assert words_of(i.RECOVERIES, "cause") == set(get_args(get_type_hints(e.PartitionGained)["cause"])) - {""}
    causes = {
        str(node.value)
        for name in ("fleet.py", "slots.py", "parent.py", "aide.py")
        for call in ast.walk(MODULES[f"runtime/worker/{name}"])
        if isinstance(call, ast.Call) and last_name(call.func) == "Cause"
        for node in ast.walk(call.args[0])
        if isinstance(node, ast.Constant) and " " not in str(node.value)
    }
    assert causes == words_of(i.SHARD_RESTARTS, "cause")


class Unshowable(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no")


def test_a_traceback_stands_below_its_line_without_credentials_whoever_formats_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raised = ValueError("redis://:hunter2@db")
    for traceback in ("Traceback\nredis://:hunter2@db", raised):
        caplog.clear()
        say(logging.getLogger("stepwell.x"), "PartFailed", "it failed", traceback=traceback)
        [record] = caplog.records
        for formatter in (logging.Formatter(), JsonFormatter(), KeyValueFormatter()):
            shown = formatter.format(record)
            assert "redis://:***@db" in shown
            assert "hunter2" not in shown
    say(logging.getLogger("stepwell.x"), "PartFailed", "it failed", traceback=Unshowable())
    assert "Unshowable (its traceback can't be shown: RuntimeError)" in caplog.text


def test_a_line_comes_from_where_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def notices() -> None:
        say(logging.getLogger("stepwell.x"), "Healed", "healed")

    notices()
    [record] = caplog.records
    assert (record.pathname, record.funcName) == (__file__, "notices")
    assert record.lineno == notices.__code__.co_firstlineno + 1
