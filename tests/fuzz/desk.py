"""The command line, run in this process against a world's server."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import redis
from sim.harness import World
from typer.main import get_command

from stepwell import demo
from stepwell.cli import app as cli_app
from stepwell.cli import bulk, dead, executions, explain, looking, main, tailing, top
from stepwell.client import Client, address
from stepwell.client.moves import Ask, Move, Peek
from stepwell.core.errors import StoreUnreachable
from stepwell.metrics import logs
from stepwell.store import connect as connections
from stepwell.store.url import read_url
from stepwell.worker import parent

HERE = "redis://:hunter2@fake:6379"
SECRET = "hunter2"
WAITS_MAX = 20
"""So often it waits; then a person gives up."""
INTERRUPTED = 130


_parser = functools.cache(get_command)  # building it takes longer than a command


def _no_server(*_: object, **__: object) -> NoReturn:
    raise StoreUnreachable("no server is started here")


def _nothing(*_: object, **__: object) -> int:
    return 0


# What would start processes, take ports or change this process for good.
INSTEAD: tuple[tuple[Any, str, Callable[..., object]], ...] = (
    (address.EmbeddedServer, "use", _no_server),
    (parent, "Parent", _no_server),
    (demo, "main", _nothing),
    (logs, "setup_logging", _nothing),
    (top, "_wait", _nothing),
)


class Desk:
    """`desk("show", "A1")` gives exit code, stdout and stderr. Who waits lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = itertools.count(1)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(b"{}"))
        with (
            self._patched(),
            mock.patch.object(sys, "stdin", stdin),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def client(self, url: str = HERE) -> Client:
        """A client of the world's server, whose waits are the world's time."""
        client = Client(
            url,
            namespace="sim",
            clock=self._world.clock,
            new_id=lambda: f"id{next(self._ids)}",
            connect=self._connect,
        )
        plain, heard = client._wire._carry_out, itertools.count()

        def carry_out(move: Move, ear: Any) -> object:
            if isinstance(move, Ask | Peek):
                return plain(move, ear)
            if next(heard) > WAITS_MAX:
                raise KeyboardInterrupt
            self._world.run_for(getattr(move, "seconds", 0.0))
            return False

        client._wire._carry_out = carry_out  # type: ignore[method-assign]
        return client

    def _open(self, url: str | None, data: Path | None, _namespace: str, **_: Any) -> Client:
        return self.client(address.Place(address.resolve(url or (None if data else HERE), data)).url)

    def _connect(self, url: str = HERE, **_: Any) -> redis.Redis:
        read_url(url)
        return self._world.connect()

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in (dead, executions, explain, looking, tailing, top):
                if hasattr(module, "open_client"):
                    stack.enter_context(mock.patch.object(module, "open_client", self._open))
            stack.enter_context(mock.patch.object(bulk, "AT_ONCE", 1))  # the world is one thread's
            stack.enter_context(mock.patch.object(connections, "connect", self._connect))
            stack.enter_context(mock.patch.object(cli_app, "get_command", _parser))
            for place, name, instead in INSTEAD:
                stack.enter_context(mock.patch.object(place, name, instead))
            yield


def in_words(said: tuple[int, str, str], verbose: bool = False) -> None:
    """Documented exit codes, sentences, no traceback, no credential."""
    code, out, err = said
    assert code in (0, 1, 2, INTERRUPTED), said
    assert verbose or "Traceback" not in out + err, err
    assert "stepwell: unexpected" not in err, err
    assert SECRET not in out + err, said
    assert code == 0 or out or err, "it says nothing"
