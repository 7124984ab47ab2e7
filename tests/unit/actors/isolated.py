"""Steps for tests of step processes, which import this module. They meet the test at named pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import setproctitle

from stepwell import FatalError, Retry, RetryAfter, current_step, step

LOCK = threading.Lock()  # nothing that could be sent anywhere
_kept: list[Any] = []


@dataclass
class Order:
    """An argument with a type of its own."""

    id: str
    cents: int = 0


class Declined(Exception):
    """An error that a policy names."""


def say(pipe: str, words: object = "") -> None:
    """Tell the test something; returns when it listens."""
    with open(pipe, "w") as out:
        out.write(str(words))


def hear(pipe: str) -> str:
    """What the other side says; returns when all that may speak have closed the pipe."""
    with open(pipe) as source:
        return source.read()


@step(isolation="process")
def pid() -> int:
    return os.getpid()


@step(isolation="process")
async def async_pid() -> int:
    return os.getpid()


@step
def thread_pid(value: object = None) -> int:
    return os.getpid()


@step
async def loop_pid() -> int:
    return os.getpid()


@step(isolation="process")
def typed(order: Order, *more: Order, **named: Order) -> list[str]:
    with LOCK:
        return [type(each).__name__ + each.id for each in (order, *more, *named.values())]


@step(isolation="process")
def echo(value: Any) -> Any:
    return value


@step(isolation="process", timeout=30)
def told() -> list[object]:
    me = current_step()
    return [me.execution_id, me.path, me.attempt, me.idempotency_key, me.fencing_token, me.deadline]


@step(isolation="process", timeout=30)
async def told_async() -> list[object]:
    me = current_step()
    return [me.execution_id, me.path, me.attempt, me.idempotency_key, me.fencing_token, me.deadline]


ERRORS: dict[str, Callable[[], BaseException]] = {
    "retry after": lambda: RetryAfter(7, "later"),
    "fatal": lambda: FatalError("no"),
    "declined": lambda: Declined("no"),
    "other": lambda: OSError("see http://ada:secret@host/"),
    "exit": lambda: SystemExit(3),
}


@step(isolation="process", retry=Retry(give_up_on=(Declined,)))
def fail(how: str) -> None:
    raise ERRORS[how]()


@step(isolation="process")
def fail_saying(words: str) -> None:
    raise ValueError(words)


@step(isolation="process")
def result_of_size(size: int) -> str:
    return "x" * size


@step(isolation="process")
def no_json() -> object:
    return object()


def _exit(code: int) -> None:
    os._exit(code)


def _kill(number: int) -> None:
    os.kill(os.getpid(), number)


def _close_everything(_: int) -> None:
    threading.Thread(target=signal.pause).start()
    os.closerange(3, 256)


DEATHS = {"exit": _exit, "kill": _kill, "close": _close_everything}


@step(isolation="process")
def die(how: str, number: int = 0) -> None:
    DEATHS[how](number)


@step(isolation="process")
def leave_a_child(entered: str, gate: str) -> None:
    """The child has left the group, and keeps the connection until the gate opens."""
    if os.fork() == 0:
        os.setsid()
        signal.alarm(30)  # it outlives no test that fails
        say(entered)
        hear(gate)
        os._exit(0)
    hear(entered)
    os._exit(5)


@step
def die_on_a_thread() -> None:
    os._exit(137)


@step(isolation="process")
def held(entered: str, gate: str) -> str:
    say(entered, os.getpid())
    return hear(gate)


@step
def lane_held(entered: str, gate: str) -> str:
    say(entered, os.getpid())
    return hear(gate)


@step(isolation="process", timeout=0.3)
def hang_with_a_child(alive: str) -> None:
    """The pipe `alive` is open for writing as long as the child lives."""
    subprocess.Popen([sys.executable, "-c", f"import signal; out = open({alive!r}, 'w'); signal.pause()"])
    signal.pause()


@step(isolation="process")
def end_before_a_child(entered: str, alive: str, gate: str) -> None:
    """The pipe `alive` is open for writing as long as the child lives; the body ends once the gate is opened."""
    code = f"import signal; out = open({alive!r}, 'w'); open({entered!r}, 'w').close(); signal.pause()"
    subprocess.Popen([sys.executable, "-c", code])
    hear(gate)


@step(isolation="process")
def keep_open(alive: str) -> int:
    """The pipe is open for writing as long as this process lives."""
    _kept.append(os.open(alive, os.O_RDWR))
    return os.getpid()


@step(isolation="process")
def world() -> dict[str, object]:
    inodes = []
    for descriptor in range(3, 256):
        try:
            inodes.append(os.fstat(descriptor).st_ino)
        except OSError:
            continue
    return {
        "group": os.getpgid(0),
        "pid": os.getpid(),
        "inodes": inodes,
        "stdin": sys.stdin.read(),
        "argv": sys.argv,
        "title": setproctitle.getproctitle(),
    }


@step(isolation="process")
def traced() -> list[str]:
    """The active span, and whose spans are made here."""
    from opentelemetry import trace

    active = trace.get_current_span().get_span_context()
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    return [f"{active.span_id:016x}", "" if resource is None else resource.attributes["service.instance.id"]]
