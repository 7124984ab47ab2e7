"""Ports for servers that are started beside others, on a machine where connections come and go all the time."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Ports", "free_port", "outside"]

LOOPBACK = "127.0.0.1"
CANDIDATES = range(10_000, 65_536)
# Where the kernel does not say: the widest of those that systems have by default.
USUAL_EPHEMERAL = range(32_768, 65_536)
EPHEMERAL_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Gives out each of its candidates at most once, by chance, so that two programs seldom ask for the same one."""

    def __init__(self, candidates: Iterable[int], chance: random.Random, is_free: Callable[[int], bool]) -> None:
        self._left = list(candidates)
        chance.shuffle(self._left)
        self._is_free = is_free

    def take(self) -> int:
        """A port that nobody uses now. Raises OSError if none is left."""
        while self._left:
            port = self._left.pop()
            if self._is_free(port):
                return port
        raise OSError("no free port is left")


def outside(ephemeral: range) -> list[int]:
    """The candidates that the kernel gives to nobody who asks for any port; all of them if it may give any."""
    return [port for port in CANDIDATES if port not in ephemeral] or list(CANDIDATES)


def free_port() -> int:
    """A loopback port that nobody listens on; whoever connects somewhere, or asks for any port, will not get it."""
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


_of_this_process = Ports(outside(_ephemeral()), random.Random(), _is_free)
