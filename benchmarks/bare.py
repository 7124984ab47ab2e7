"""A connection with nothing around it: bytes out, replies in. The least that a client of Redis can cost."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

import hiredis

from stepwell.store.flight import pack

__all__ = ["Bare", "Reply"]

READ_BYTES = 1 << 18
Reply = object


class Bare:
    """One connection to the server of a `unix://` or `redis://` URL.

    It waits at most `timeout` seconds for anything to arrive.

    Raises:
        TimeoutError: nothing arrived in time.
        ConnectionError: the server closed the connection.
    """

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        self._socket = _connected(urlsplit(url), timeout)
        self._reader = hiredis.Reader()

    def send(self, packed: bytes) -> None:
        """Send packed commands."""
        self._socket.sendall(packed)

    def next(self) -> Reply:
        """The next reply; an error reply is returned, not raised."""
        while (reply := self._reader.gets()) is False:
            self._fill()
        return reply

    def ready(self) -> list[Reply]:
        """The next reply and all that have arrived with it."""
        replies = [self.next()]
        while (reply := self._reader.gets()) is not False:
            replies.append(reply)
        return replies

    def line(self) -> bytes:
        """The next reply, which must be one line of text."""
        reply = self.next()
        if not isinstance(reply, bytes):
            raise ConnectionError(f"the server answered {reply!r:.200}")
        return reply

    def call(self, *command: str | bytes | int) -> Reply:
        """One command and its reply."""
        self.send(pack([list(command)]))
        return self.next()

    def batch(self, packed: bytes, count: int) -> Sequence[Reply]:
        """`count` packed commands in one write, and their replies."""
        self.send(packed)
        return [self.next() for _ in range(count)]

    def close(self) -> None:
        """Close the connection; a thread that waits in `next` gets a ConnectionError or OSError."""
        self._socket.close()

    def _fill(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _connected(url: SplitResult, timeout: float) -> socket.socket:
    if url.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        connection.connect(unquote(url.path))
    else:
        connection = socket.create_connection((url.hostname or "127.0.0.1", url.port or 6379), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
