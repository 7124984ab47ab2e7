"""Unit tests run in no time: whatever would wait in real time or reach a network fails at once.

A test of real threads carries the marker `threads`; it waits by events and futures with a hang limit.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest


class RealWait(AssertionError):
    """A unit test tried to wait in real time or to connect somewhere."""


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refused(*_arguments: object, **_options: object) -> NoReturn:
        raise RealWait(f"{what} in a unit test: use virtual time or a fake, or mark the test `threads`")

    return refused


def _refuse_timed(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    def wait(self: object, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            _refuse(f"{what} with a timeout of {timeout:g} s")()
        return original(self, timeout)

    return wait


@pytest.fixture(autouse=True)
def _no_real_waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("threads"):
        return
    monkeypatch.setattr(time, "sleep", _refuse("time.sleep"))
    monkeypatch.setattr(socket.socket, "connect", _refuse("a socket's connect"))
    monkeypatch.setattr(socket.socket, "connect_ex", _refuse("a socket's connect"))
    # Event.wait, Queue.get, Barrier.wait and Future.result all wait on a Condition.
    monkeypatch.setattr(threading.Condition, "wait", _refuse_timed(threading.Condition.wait, "a wait"))
    for selector in {selectors.DefaultSelector, selectors.SelectSelector, selectors.PollSelector}:
        monkeypatch.setattr(selector, "select", _refuse_timed(selector.select, "an event loop's wait"))
    monkeypatch.setattr(asyncio, "sleep", _virtual_only(asyncio.sleep))


def _virtual_only(original: Callable[..., Any]) -> Callable[..., Any]:
    async def sleep(delay: float, result: object = None) -> object:
        if delay > 0:
            _refuse(f"asyncio.sleep({delay:g})")()
        return await original(delay, result)

    return sleep
