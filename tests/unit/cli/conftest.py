"""How a command is run against a client that is made up."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from stepwell.cli import main

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[ModuleType, str], Run]:
    """`run_of(module, command)(client, *arguments)` gives the exit code, stdout and stderr."""

    def of(module: ModuleType, command: str) -> Run:
        def running(client: Any, *arguments: str) -> tuple[int, str, str]:
            monkeypatch.setattr(module, "open_client", lambda *_, **__: client)
            code = main([command, *arguments])
            printed = capsys.readouterr()
            return code, printed.out, printed.err

        return running

    return of
