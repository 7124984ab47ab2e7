"""What shards and workers log is found from the code: each kind has a line, its level, and fields that the page has."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from stepwell.actors import store_events as e
from stepwell.actors.noting import COUNTED, LEVELS, note
from stepwell.metrics import instruments as i
from stepwell.metrics.formatting import JsonFormatter, KeyValueFormatter
from stepwell.metrics.instrument import Instrument
from stepwell.metrics.telling import FIELDS
from stepwell.store.troubles import KINDS
from stepwell.worker import lines

ROOT = Path(__file__).resolve().parents[3]
SPEAKERS = {"note", "tell", "say", "_tell_of"}
OWN_WORDS = {"level", "traceback"}
PAGE = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")


def calls() -> Iterator[tuple[ast.Call, ast.FunctionDef]]:
    """Each call by which a shard or a worker logs a line, and the function that makes it."""
    for path in sorted([*(ROOT / "actors").rglob("*.py"), *(ROOT / "runtime" / "worker").glob("*.py")]):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and last_name(call.func) in SPEAKERS:
                        yield call, function


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def said_by(call: ast.Call, function: ast.FunctionDef) -> set[str]:
    """Names of what the call tells: a class, a word, `type(event)`, or a variable that was given one of them."""
    found: set[str] = set()
    for argument in call.args[:2]:
        if isinstance(argument, ast.Constant):
            found.add(str(argument.value))
        elif isinstance(argument, ast.Call) and last_name(argument.func) == "type":
            of = last_name(argument.args[0])
            notes = [each.annotation for each in function.args.args if each.arg == of]
            found |= {
                last_name(node) for each in notes if each for node in ast.walk(each) if isinstance(node, ast.Name)
            }
        else:
            name = last_name(argument)
            given = [
                last_name(value)
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                for target, value in assigned(node)
                if last_name(target) == name
            ]
            found |= {name, *given}
    return found


def assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def test_what_becomes_of_each_kind_of_observation_is_decided() -> None:
    assert {*LEVELS, *COUNTED} == set(e.STORE_EVENTS)
    assert not COUNTED & set(LEVELS)


def test_each_observation_that_is_logged_has_its_line() -> None:
    told = {name for call, function in calls() for name in said_by(call, function)}
    here = ast.parse((ROOT / "runtime" / "worker" / "shardlog.py").read_text(encoding="utf-8"))
    told |= {last_name(node.cls) for node in ast.walk(here) if isinstance(node, ast.MatchClass)}
    assert {kind.__name__ for kind in LEVELS} <= told
    assert set(lines.LEVELS) <= told
    assert set(lines.LEVELS) == set(get_args(lines.Happening))


def test_lines_have_no_field_that_the_page_does_not_explain() -> None:
    fields = {word.arg for call, _ in calls() for word in call.keywords if word.arg is not None}
    assert fields - OWN_WORDS <= set(FIELDS)
    assert len(fields) > 15


@pytest.mark.parametrize("kind", sorted(LEVELS, key=lambda kind: kind.__name__))
def test_a_line_has_the_name_and_the_level_of_what_was_observed(
    kind: type[e.StoreEvent], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    note(logging.getLogger("stepwell.x"), kind, "100 %% of %d", 3, kind="full", cause=None)
    [record] = caplog.records
    line = JsonFormatter().format(record)
    assert record.levelno == LEVELS[kind]
    assert '"message": "100 % of 3"' in line
    assert f'"kind": "full", "event": "{kind.__name__}"' in line
    assert "cause" not in line


def table(heading: str) -> dict[str, str]:
    return dict(
        re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.split(f"| {heading} |", 1)[1].split("\n\n")[0], re.MULTILINE)
    )


def test_the_page_on_logs_has_each_line_with_its_level() -> None:
    assert table("observation") == {kind.__name__: logging.getLevelName(level) for kind, level in LEVELS.items()}
    assert table("of shards and workers") == {name: logging.getLevelName(level) for name, level in lines.LEVELS.items()}
    only_counted = PAGE.split("are only counted")[0].rsplit("\n\n", 1)[1]
    assert {kind.__name__ for kind in COUNTED} == set(re.findall(r"`(\w+)`", only_counted))


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
        for call in ast.walk(ast.parse((ROOT / "runtime" / "worker" / name).read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and last_name(call.func) == "Cause"
        for node in ast.walk(call.args[0])
        if isinstance(node, ast.Constant) and " " not in str(node.value)
    }
    assert causes == words_of(i.SHARD_RESTARTS, "cause")


def test_a_traceback_stands_below_its_line_without_credentials_whoever_formats_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines.tell(logging.getLogger("stepwell.x"), "PartFailed", "it failed", traceback="Traceback\nredis://:hunter2@db")
    [record] = caplog.records
    for formatter in (logging.Formatter(), JsonFormatter(), KeyValueFormatter()):
        shown = formatter.format(record)
        assert "redis://:***@db" in shown
        assert "hunter2" not in shown
    assert caplog.text.count("Traceback") == 1


def test_a_line_comes_from_where_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("stepwell.x")

    def notices() -> None:
        note(logger, e.Healed, "healed")

    def sees() -> None:
        lines.tell(logger, "ShardSlow", "slow")

    notices()
    sees()
    for record, by in zip(caplog.records, (notices, sees), strict=True):
        assert (record.pathname, record.funcName) == (__file__, by.__name__)
        assert record.lineno == by.__code__.co_firstlineno + 1
