"""The fixture that keeps unit tests from waiting really catches each way to wait."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
from collections.abc import Callable

import pytest


def _connect(family: socket.AddressFamily, address: str | tuple[str, int]) -> None:
    with socket.socket(family) as client:
        client.connect(address)


def _loop_timer() -> None:
    async def wait() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 1)

    asyncio.run(wait())


WAITS = {
    "time.sleep": lambda: time.sleep(1),
    "Event.wait": lambda: threading.Event().wait(1),
    "Condition.wait_for": lambda: _wait_for(),
    "Queue.get": lambda: queue.Queue[int]().get(timeout=1),
    "asyncio.sleep": lambda: asyncio.run(asyncio.sleep(1)),
    "an event loop's timer": _loop_timer,
    "a unix socket": lambda: _connect(socket.AF_UNIX, "/nowhere"),
    "a tcp socket": lambda: _connect(socket.AF_INET, ("127.0.0.1", 9)),
}


def _wait_for() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait_for(lambda: False, timeout=1)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_a_unit_test_that_waits_fails_at_once(wait: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match="in a unit test"):
        wait()


def test_what_does_not_wait_is_let_through() -> None:
    done = threading.Event()
    done.set()
    assert done.wait(0)
    assert asyncio.run(asyncio.sleep(0, "now")) == "now"


@pytest.mark.threads
def test_a_test_of_threads_may_wait_for_an_event() -> None:
    started = threading.Event()
    thread = threading.Thread(target=started.set)
    thread.start()
    assert started.wait(30)
    thread.join()
