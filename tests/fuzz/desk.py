"""The command line, run in this process against a world's server."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import redis
from sim.harness import World
from typer.main import get_command

from stepwell.cli import app as cli_app
from stepwell.cli import dead, executions, explain, looking, main
from stepwell.client import Client
from stepwell.client.moves import Ask, Move
from stepwell.store import connect as connections

HERE = "redis://:hunter2@fake:6379"
SECRET = "hunter2"
WAITS_MAX = 20
"""So often it waits; then a person gives up."""
INTERRUPTED = 130


_parser = functools.cache(get_command)  # building it takes longer than a command


class Desk:
    """`desk("show", "A1")` gives exit code, stdout and stderr. Who waits lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = itertools.count(1)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with self._patched(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def client(self) -> Client:
        """A client of the world's server, whose waits are the world's time."""
        client = Client(
            HERE,
            namespace="sim",
            clock=self._world.clock,
            new_id=lambda: f"id{next(self._ids)}",
            connect=self._connect,
        )
        plain, heard = client._wire._carry_out, itertools.count()

        def carry_out(move: Move, ear: Any) -> object:
            if isinstance(move, Ask):
                return plain(move, ear)
            if next(heard) > WAITS_MAX:
                raise KeyboardInterrupt
            self._world.run_for(getattr(move, "seconds", 0.0))
            return False

        client._wire._carry_out = carry_out  # type: ignore[method-assign]
        return client

    def _open(self, *_: Any, **__: Any) -> Client:
        return self.client()

    def _connect(self, *_: Any, **__: Any) -> redis.Redis:
        return self._world.connect()

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in (dead, executions, explain, looking):
                if hasattr(module, "open_client"):
                    stack.enter_context(mock.patch.object(module, "open_client", self._open))
            stack.enter_context(mock.patch.object(connections, "connect", self._connect))
            stack.enter_context(mock.patch.object(cli_app, "get_command", _parser))
            yield


def in_words(said: tuple[int, str, str]) -> None:
    """Documented exit codes, sentences, no traceback, no credential."""
    code, out, err = said
    assert code in (0, 1, 2, INTERRUPTED), said
    assert "Traceback" not in out + err, err
    assert "unexpected" not in err, err
    assert SECRET not in out + err, said
    assert code == 0 or out or err, "it says nothing"
