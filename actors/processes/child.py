"""What a step process does: it loads steps, runs one attempt at a time on its main thread, and ends with its shard."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

import setproctitle

from stepwell.actors.processes import code, wire
from stepwell.actors.processes.bereavement import hear_of_parents_end
from stepwell.core.messages import message_of
from stepwell.core.records import Failure
from stepwell.core.redact import hide_secrets
from stepwell.flow.arguments import unpack
from stepwell.flow.attempt import failure_of, where_raised
from stepwell.flow.context import running_step
from stepwell.flow.definitions import StepLike
from stepwell.metrics.logs import setup_logging
from stepwell.metrics.tracing import TraceSetup, open_tracing

logger = logging.getLogger("stepwell.runner")
OOM_SCORE = "500"  # half of all memory


def main(descriptor: int) -> None:
    """Serve the shard at the other end of the socket until it says `Retire` or is gone."""
    _heed_signals()
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with, args=(connection,), name="stepwell-guard", daemon=True).start()
    try:
        _serve(connection)
    except BaseException:
        if _is_alone(connection):
            _end_group()  # nobody else is there to clear away what the steps have started
        # A body has closed the connection, say. Threads that it left must not keep the process.
        traceback.print_exc()
        os._exit(1)


def _serve(connection: socket.socket) -> None:
    steps: dict[int, StepLike] = {}
    traces: TraceSetup | None = None
    while True:
        asked = wire.question(_receive(connection))
        if isinstance(asked, wire.Retire):
            return
        if isinstance(asked, wire.Hello):
            _begin(asked)
            traces = asked.traces
        elif isinstance(asked, wire.Load):
            connection.sendall(wire.frame(_loaded(asked, steps)))
        else:
            connection.sendall(wire.frame(_ended(asked, steps[asked.number], traces)))
        del asked


def _begin(hello: wire.Hello) -> None:
    _end_with_parent(hello.parent)
    _go_before_the_shard()
    setproctitle.setproctitle(f"stepwell: steps of {hello.parent}")
    hide_secrets(*hello.secrets)
    if hello.log is not None:
        log = hello.log
        setup_logging(log.json, log.level, log.secrets, fields=log.fields)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # a killed process flushes nothing


def _loaded(asked: wire.Load, steps: dict[int, StepLike]) -> wire.Loaded:
    try:
        steps[asked.number] = code.load(asked.code)
    except BaseException as error:  # the user's module may raise anything, SystemExit too
        logger.debug("step %s could not be loaded", asked.name, exc_info=error)
        said = f"step {asked.name} could not be loaded in its process: {message_of(error)}"
        return wire.Loaded(Failure(type(error).__name__, said, where=where_raised(error)))
    return wire.Loaded()


def _ended(asked: wire.Run, step: StepLike, traces: TraceSetup | None) -> wire.Ended:
    try:
        return wire.Ended(_result(asked, step, traces))
    except BaseException as error:
        context = asked.context
        logger.debug("attempt %d of %s %s raised", context.attempt, context.execution_id, context.path, exc_info=error)
        return wire.Ended(error=failure_of(error, step))


def _result(asked: wire.Run, step: StepLike, traces: TraceSetup | None) -> bytes:
    args, kwargs = unpack(asked.arguments, step)
    context = contextvars.copy_context()
    context.run(running_step.set, asked.context)
    if traces is not None:
        context.run(open_tracing(traces).enter, asked.context)
    if not step.is_async:
        return step.encode_result(context.run(step.fn, *args, **kwargs))
    import asyncio

    return step.encode_result(context.run(lambda: asyncio.run(step.fn(*args, **kwargs))))


def _receive(connection: socket.socket) -> bytes:
    return _exactly(connection, wire.size_of(_exactly(connection, wire.HEAD_BYTES)))


def _exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes. At the end of the stream it waits for the guard, which ends the process."""
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            _end_group()
        data += part
    return bytes(data)


def _is_alone(connection: socket.socket) -> bool:
    """Whether the shard has closed its end, or is dead. False where a body has closed ours."""
    return _hears_the_end(connection, 0)


def _end_with(connection: socket.socket) -> None:
    """Wait until the shard has closed its end, or is dead; then end, with all that the steps have started. Where a
    body has closed ours, before this thread got here, the main thread ends the process, and by another code."""
    if _hears_the_end(connection, None):
        _end_group()


def _hears_the_end(connection: socket.socket, timeout: int | None) -> bool:
    poll = select.poll()
    try:
        poll.register(connection, 0)  # the end is reported without being asked for, data are not
    except ValueError:
        return False
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(timeout))


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _end_with_parent(parent: int) -> None:
    hear_of_parents_end()
    if os.getppid() != parent:  # it died before
        _end_group()


def _go_before_the_shard() -> None:
    """Linux: where memory runs out, this process is killed rather than its shard."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")


def _heed_signals() -> None:
    """What stops a whole service by signalling each of its processes must not cut attempts short: the shard drains.

    Handlers rather than SIG_IGN, which programs that a body starts would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignored)


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """The shard decides when we end."""
