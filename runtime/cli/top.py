"""`top`: a live view of a namespace, from anywhere that reaches its Redis."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stepwell.cli.durations import Seconds
from stepwell.cli.session import (
    NAMESPACE,
    Data,
    Json,
    Namespace,
    Redis,
    Session,
    Verbose,
    open_client,
    resolved,
    session,
)
from stepwell.core.errors import StoreError
from stepwell.core.messages import message_of
from stepwell.core.redact import redact_url

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from stepwell.client.client import Client
    from stepwell.core.overview import Overview

__all__ = ["add_to", "top"]

# Between two frames: countdowns tick smoothly. Redis is asked much less often.
FRAME_SECONDS: Final = 0.25
# Of the time that it takes to read, so many times as much passes before it is read again: a large namespace is not kept
# busy by those who look at it.
REST_FACTOR: Final = 9
ENTRIES_MAX: Final = 50
FIRST_SECONDS: Final = 1.0
# Of these rich shows nothing at all.
NO_SCREENS: Final = ("dumb", "unknown")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        epilog="Examples:\n\nstepwell top\n\nstepwell top --redis redis://db:6379 --interval 5\n\n"
        "stepwell top --once --json | jq .backoffs"
    )(top)


def top(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Read so often.", parser=Seconds(0.1, 3600.0))
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    redis: Redis = None,
    data: Data = None,
    namespace: Namespace = NAMESPACE,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Watch executions, who backs off and until when, what runs long, and which shards live.

    It needs nothing but Redis. With --json each reading is one JSON object on a line of its own.
    """
    own = session(context)
    address = resolved(redis, data)
    where = str(address.data_dir) if address.url is None else redact_url(address.url)
    with open_client(redis, data, namespace) as client:
        reader = _Reader(client, where, interval)
        if own.json:
            _print_json(own, reader, once)
        elif once or not own.on_screen:
            _print_frame(own, reader)
        elif os.environ.get("TERM", "").lower() in NO_SCREENS:
            own.remark("this terminal can't show a live view (TERM): one frame")
            _print_frame(own, reader)
        else:
            _watch(own, reader)


class _Reader:
    """Readings of a namespace, each compared with the one before."""

    def __init__(self, client: Client, where: str, interval: float) -> None:
        self.where = where
        """The server, without credentials."""
        self._client = client
        self._interval = interval
        self._last: Overview | None = None
        self._took = 0.0

    @property
    def pause(self) -> float:
        """Seconds to wait before the next reading."""
        return max(self._interval, REST_FACTOR * self._took)

    def read(self) -> Overview:
        """A reading. Raises StoreError."""
        began = time.monotonic()
        self._last = self._client.overview(self._last, ENTRIES_MAX)
        self._took = time.monotonic() - began
        return self._last

    def compared(self) -> Overview:
        """A reading with another one shortly before, so that it says what changes. Raises StoreError."""
        if self._last is None:
            self.read()
            _wait(min(self._interval, FIRST_SECONDS))
        return self.read()


def _print_json(own: Session, reader: _Reader, once: bool) -> None:
    import msgspec

    own.answer_encoded(msgspec.json.encode(reader.compared()).decode())
    while not once:
        own.flush()
        _wait(reader.pause)
        own.answer_encoded(msgspec.json.encode(reader.read()).decode())


def _print_frame(own: Session, reader: _Reader) -> None:
    from stepwell.cli.glance import Frame, frame

    seen = reader.compared()
    console = _console(own)
    console.print(frame(seen, Frame(own.width, None, seen.at, reader.where, ascii_only=own.ascii)))


def _watch(own: Session, reader: _Reader) -> None:
    """Show frames until a person has seen enough."""
    from rich.live import Live

    from stepwell.cli.keyboard import Keyboard

    console = _console(own)
    first = reader.read()  # what is wrong at the beginning is said as everywhere else
    with suppress(KeyboardInterrupt), _View(own, console, reader, first) as view, Keyboard() as keyboard:
        keys = "q quits" if keyboard.works else "Ctrl-C quits"
        with Live(view.drawn(keys), console=console, screen=True, auto_refresh=False) as live:
            live.refresh()
            while "q" not in keyboard.pressed(FRAME_SECONDS).lower():
                live.update(view.drawn(keys), refresh=True)


@dataclass(frozen=True, slots=True)
class _News:
    """What was seen last, when (monotonic seconds), and why there is nothing newer."""

    seen: Overview
    at: float
    trouble: str = ""


class _View:
    """Reads on a thread of its own, so that a server that does not answer holds up no key and no countdown."""

    def __init__(self, own: Session, console: Console, reader: _Reader, first: Overview) -> None:
        self._ascii_only = own.ascii  # asked now: a live view puts something into stdout's place that does not know it
        self._console = console
        self._reader = reader
        self._news = _News(first, time.monotonic())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="stepwell-top", daemon=True)

    def __enter__(self) -> _View:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()  # it is not waited for: it may be waiting for Redis

    def drawn(self, keys: str) -> RenderableType:
        """The frame of now."""
        from stepwell.cli.glance import Frame, frame

        news, size = self._news, self._console.size
        passed = time.monotonic() - news.at
        trouble = f"this is {passed:.0f} s old: {news.trouble}" if news.trouble else ""
        now = news.seen.at + int(passed * 1000)
        of = Frame(size.width, size.height, now, self._reader.where, trouble, keys, self._ascii_only)
        return frame(news.seen, of)

    def look(self) -> None:
        """Read once more. What was seen before stays where that fails, and it is said why."""
        try:
            seen = self._reader.read()
        except Exception as error:
            kind = "" if isinstance(error, StoreError) else f"unexpected {type(error).__name__}: "
            self._news = replace(self._news, trouble=kind + message_of(error))
        else:
            self._news = _News(seen, time.monotonic())

    def _read(self) -> None:
        while not self._over.wait(self._reader.pause):
            self.look()


def _wait(seconds: float) -> None:
    time.sleep(seconds)


def _console(own: Session) -> Console:
    from rich.console import Console

    return Console(width=None if own.on_screen else own.width, highlight=False, markup=False, emoji=False)
