"""Every option that is a duration or a time, found by a walk over all commands, refuses what is none."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from typer.main import get_command
from unit.cli.walk import Option, walk

from stepwell.cli import main
from stepwell.cli.app import app
from stepwell.cli.durations import Seconds, When

ODD = ["inf", "-inf", "nan", "1e400", "-1", "-0.5", "9" * 400, "4000000000", "9999999w", "soon", ""]
NO_TIMES = ["inf", "nan", "1e400", "-5m", "soon", "9" * 400 + "h", "2026-13-01", ""]


OPTIONS = list(walk(app))


def those(kind: type[Seconds | When]) -> list[Any]:
    return [
        pytest.param(each.path, each, id=f"{' '.join(each.path)} {each.name}")
        for each in OPTIONS
        if isinstance(each.info.parser, kind)
    ]


def test_the_walk_finds_all_commands() -> None:
    assert {each.path[0] for each in OPTIONS} == set(getattr(get_command(app), "commands", {}))


def test_no_duration_and_no_time_is_read_in_another_way() -> None:
    kinds = {"SECONDS": Seconds, "SPAN": Seconds, "TIME": When}
    for each in OPTIONS:
        if each.kind is float or float in get_args(each.kind):
            assert isinstance(each.info.parser, Seconds), f"{each.path} {each.name}"
        if each.info.metavar in kinds:
            assert isinstance(each.info.parser, kinds[each.info.metavar]), f"{each.path} {each.name}"
    found = {each.name for each in OPTIONS if isinstance(each.info.parser, Seconds)}
    assert found >= {"--timeout", "--grace", "--passivate-after", "--interval"}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("path", "option"), those(Seconds))
def test_a_duration_that_is_none_is_refused(
    path: tuple[str, ...], option: Option, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, option.name, odd]) == 2
    said = capsys.readouterr().err
    assert option.name in said
    assert "expected it to be a number of seconds from " in said
    assert len(said.splitlines()[-1]) < 300


@pytest.mark.parametrize("odd", NO_TIMES)
@pytest.mark.parametrize(("path", "option"), those(When))
def test_a_time_that_is_none_is_refused(
    path: tuple[str, ...], option: Option, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, option.name, odd]) == 2
    said = capsys.readouterr().err
    assert option.name in said
    assert "such as '2h ago'" in said


@pytest.mark.parametrize(("path", "option"), those(Seconds))
def test_bounds_are_told(path: tuple[str, ...], option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    parser = option.info.parser
    assert isinstance(parser, Seconds)
    assert parser(f"{parser.least + 1:g}") == parser.least + 1
    main([*path, option.name, "-1"])
    assert f"from {parser.least:g} to" in capsys.readouterr().err
