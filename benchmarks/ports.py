"""Ports for servers that are started beside others, on a machine where connections come and go all the time."""

from __future__ import annotations

import atexit
import errno
import random
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Claims", "Ports", "free_port", "outside"]

LOOPBACK = "127.0.0.1"
CANDIDATES = range(10_000, 65_536)
# Where the kernel does not say: the widest of those that systems have by default.
USUAL_EPHEMERAL = range(32_768, 65_536)
EPHEMERAL_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Gives out each of its candidates at most once, by chance, so that two programs seldom ask for the same one.
    `claim`: take a port, if it is free."""

    def __init__(self, candidates: Iterable[int], chance: random.Random, claim: Callable[[int], bool]) -> None:
        self._left = list(candidates)
        chance.shuffle(self._left)
        self._claim = claim

    def take(self) -> int:
        """A port that nobody uses now. Raises OSError if none is left."""
        while self._left:
            port = self._left.pop()
            if self._claim(port):
                return port
        raise OSError("no free port is left")


class Claims:
    """Ports that are one's own until one's process ends, also while no server listens: nobody else who claims gets
    them. An abstract socket tells of each, which leaves no file behind; where none can be made, nothing tells."""

    def __init__(self, prefix: str = "stepwell-port") -> None:
        self._prefix = prefix
        self._made: list[socket.socket] = []

    def claim(self, port: int) -> bool:
        """Take a port, unless somebody uses it or has claimed it."""
        if sys.platform != "linux":
            return _is_free(port)
        sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sign.bind(f"\0{self._prefix}-{port}")
        except OSError as error:
            sign.close()
            if error.errno == errno.EADDRINUSE:
                return False
        else:
            self._made.append(sign)
        return _is_free(port)

    def close(self) -> None:
        """Give them all back."""
        for sign in self._made:
            sign.close()
        self._made.clear()


def outside(ephemeral: range) -> list[int]:
    """The candidates that the kernel gives to nobody who asks for any port; all of them if it may give any."""
    return [port for port in CANDIDATES if port not in ephemeral] or list(CANDIDATES)


def free_port() -> int:
    """A loopback port that nobody listens on, this process' own; whoever connects somewhere, or asks for any port, will
    not get it."""
    return _of_this_process.take()


def _ephemeral() -> range:
    try:
        first, last = map(int, EPHEMERAL_FILE.read_text().split())
    except (OSError, ValueError):
        return USUAL_EPHEMERAL
    return range(first, last + 1)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


_claims = Claims()
atexit.register(_claims.close)
_of_this_process = Ports(outside(_ephemeral()), random.Random(), _claims.claim)
