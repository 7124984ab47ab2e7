"""`--namespace`: wherever a server is used, and passed on to what uses it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from unit.cli.walk import walk

from stepwell.cli import main
from stepwell.cli.app import app
from stepwell.core.errors import StoreUnreachable

WITH_SERVER = sorted({each.path for each in walk(app) if each.name == "--redis"})
GIVEN = {
    ("run",): ["flows.py"],
    ("start",): ["job"],
    ("result",): ["e1"],
    ("show",): ["e1"],
    ("retry",): ["e1"],
    ("cancel",): ["e1"],
    ("signal",): ["e1", "go"],
    ("explain",): ["flows.py", "--id", "e1", "--path", "toil"],
    ("dead", "show"): ["0:1-1"],
    ("dead", "replay"): ["0:1-1"],
    ("dead", "drop"): ["0:1-1"],
}
FLOWS = """
from stepwell import flow, step

@step
async def toil() -> int:
    return 1

@flow
async def job() -> int:
    return await toil()
"""


def test_every_command_that_uses_a_server_takes_one() -> None:
    assert sorted({each.path for each in walk(app) if each.name == "--namespace"}) == WITH_SERVER
    assert len(WITH_SERVER) >= 15


@pytest.mark.parametrize("path", WITH_SERVER, ids=" ".join)
def test_one_that_is_no_name_is_refused(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--namespace", "a b", *GIVEN.get(path, [])]) == 2
    assert "--namespace" in (said := capsys.readouterr().err)
    assert "the namespace 'a b' is not usable" in said


class Asked(StoreUnreachable):
    """What was asked for; nothing is connected."""


@pytest.mark.parametrize("given", ["shop", None])
@pytest.mark.parametrize("path", WITH_SERVER, ids=" ".join)
def test_it_reaches_what_uses_the_server(
    path: tuple[str, ...],
    given: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def client(*_: object, namespace: str, **__: object) -> NoReturn:
        asked.append(namespace)
        raise Asked("not here")

    def parent(config: Any, *_: object) -> NoReturn:
        client(namespace=config.namespace)

    def examine(_client: object, namespace: str, **_: object) -> NoReturn:
        client(namespace=namespace)

    monkeypatch.delitem(sys.modules, "flows", raising=False)  # that of another run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows.py").write_text(FLOWS)
    monkeypatch.setattr("stepwell.client.Client", client)
    monkeypatch.setattr("stepwell.worker.parent.Parent", parent)
    monkeypatch.setattr("stepwell.store.examination.examine", examine)
    monkeypatch.setattr("stepwell.metrics.logs.setup_logging", lambda *_, **__: None)
    options = ["--redis", "redis://localhost:1", *(["--namespace", given] if given else [])]
    assert main([*path, *options, *GIVEN.get(path, [])]) == 2
    assert "not here" in capsys.readouterr().err
    assert asked == [given or "stepwell"]
