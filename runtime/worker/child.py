"""The process of one shard: it loads the flows, runs the shard, and does what its parent says.

The main thread loads, starts, drains and ends. Two more talk with the parent: one listens and answers what must not
wait, one speaks. Nothing else ever waits for the parent, and when the parent is gone this process ends at once.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TypeVar

from stepwell.core.errors import StepwellError
from stepwell.core.messages import message_of
from stepwell.core.redact import redact
from stepwell.flow.lint import lint
from stepwell.flow.loader import load
from stepwell.flow.registry import Registry
from stepwell.metrics.logs import setup_logging
from stepwell.metrics.saying import say
from stepwell.store.durability import parse_durability
from stepwell.store.keys import Keys
from stepwell.store.namespace import Namespace
from stepwell.worker import control as c
from stepwell.worker import process
from stepwell.worker.hosting import Hosted, host_shard
from stepwell.worker.identity import host_info
from stepwell.worker.opening import connector
from stepwell.worker.shard import RunningShard

__all__ = ["ShardProcess", "main"]

PULSE_SECONDS = 0.5
LAST_WORDS_SECONDS = 2.0
logger = logging.getLogger("stepwell.shard")
M = TypeVar("M")


def main(hears: Connection, says: Connection) -> None:
    """Be a shard until told otherwise; the parent's ends of both pipes are elsewhere."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "run by a parent"
    number = parent.pid or 0
    process.lead_group()

    def heed_parent() -> None:
        process.die_with_parent(number)
        process.leave_signals_to_parent()

    heed_parent()
    for connection in (hears, says):
        os.set_inheritable(connection.fileno(), False)
    process.exit_now(ShardProcess(hears.fileno(), says.fileno(), heed_parent).run())


class _Over(Exception):
    """The parent wants an end before there was a beginning."""


class ShardProcess:
    """What happens in the process, from its first message to its last.

    `loaded` is called when the modules with flows are: they may have set handlers of signals that are not theirs.
    """

    def __init__(self, hears: int, says: int, loaded: Callable[[], None] = lambda: None) -> None:
        self._hears = hears
        self._says = says
        self._loaded = loaded
        self._orders: SimpleQueue[c.ToShard | str] = SimpleQueue()  # a str: why a part of the shard failed
        self._words: SimpleQueue[c.ToParent | None] = SimpleQueue()
        self._in_trouble = threading.Event()
        self._hosted: Hosted | None = None
        self._speaker = threading.Thread(target=self._speak, name="stepwell-says", daemon=True)

    def run(self) -> int:
        """Load, start, run and end; the exit code."""
        self._say(c.Hello(host_info()))
        self._speaker.start()
        threading.Thread(target=self._listen, name="stepwell-hears", daemon=True).start()
        try:
            return self._run()
        except _Over:
            self._say(c.Drained(0))
            return 0
        except StepwellError as error:
            logger.debug("the shard ends", exc_info=True)
            self._say(c.Failed(type(error).__name__, redact(message_of(error))))
            return 1
        except BaseException as error:
            say(logger, "PartFailed", "the shard ends by an unexpected error", traceback=error, part="shard")
            self._say(c.Failed(type(error).__name__, redact(f"unexpected {type(error).__name__}: {message_of(error)}")))
            return 1
        finally:
            self._words.put(None)
            self._speaker.join(LAST_WORDS_SECONDS)

    def _run(self) -> int:
        order = self._next(c.Load)
        setup_logging(order.log.json, order.log.level, fields={"shard": str(order.index)})
        process.set_title("shard", str(order.index))
        registry = load(order.targets)
        self._loaded()
        findings = [str(finding) for flow in registry for finding in lint(flow)] if order.index == 0 else []
        self._say(c.Loaded(tuple(sorted(flow.name for flow in registry)), tuple(findings)))
        begin = self._next(c.Begin)
        name = begin.settings.shard_id
        setup_logging(order.log.json, order.log.level, fields={"shard": name})
        process.set_title("shard", name)
        self._hosted = hosted = _hosted(begin, registry, self._orders.put, self._in_trouble.set)
        hosted.start()
        process.calm_the_collector()
        self._say(c.Started(_pulse(hosted.shard)))
        return self._until_told(hosted)

    def _until_told(self, hosted: Hosted) -> int:
        """Wait for the end of the shard and make it a good one."""
        order: object = None
        while not isinstance(order, c.Drain | str):
            order = self._orders.get()
        failed = isinstance(order, str)
        left = 0
        try:
            if isinstance(order, str):
                self._say(c.Failed("ShardFailed", order))
                hosted.shard.give_up()
            else:
                left = hosted.shard.drain(order.grace, threading.Event())
        finally:
            hosted.shard.stop()
        hosted.telemetry.refresh()
        hosted.telemetry.tick_logs(all_of_it=True)
        if not failed:
            self._say(c.Drained(left))
        return int(failed)

    def _next(self, kind: type[M]) -> M:
        """The parent's next order, which must be of that kind; _Over where it is another."""
        order = self._orders.get()
        if not isinstance(order, kind):
            raise _Over
        return order

    def _listen(self) -> None:
        receiver = c.Receiver(self._hears, c.to_shard())
        try:
            while not receiver.ended:
                for message in receiver.receive():
                    self._heard(message)
        except Exception as error:
            say(logger, "PartFailed", "the shard can't hear its parent any more", traceback=error, part="control")
        process.kill_group(os.getpid())  # the parent is gone, or as good as gone

    def _heard(self, message: c.ToShard) -> None:
        hosted = self._hosted
        match message:
            case c.Hurry():
                if hosted is not None:
                    hosted.shard.hurry()
            case _:
                self._orders.put(message)

    def _say(self, message: c.ToParent) -> None:
        self._words.put(message)

    def _speak(self) -> None:
        """Say what there is to say, and that we live. A parent that does not listen any more is gone, or will be."""
        due = time.monotonic() + PULSE_SECONDS
        with contextlib.suppress(OSError):
            while True:
                try:
                    message = self._words.get(timeout=max(0.0, due - time.monotonic()))
                except Empty:
                    self._pulse()
                    due = time.monotonic() + PULSE_SECONDS
                    continue
                if message is None:
                    return
                c.send(self._says, message)

    def _pulse(self) -> None:
        hosted = self._hosted
        if hosted is not None:
            hosted.telemetry.refresh()
            c.send(self._says, _pulse(hosted.shard))
        if self._in_trouble.is_set():
            self._in_trouble.clear()
            c.send(self._says, c.Trouble())


def _pulse(shard: RunningShard) -> c.Pulse:
    return c.Pulse(
        silent=shard.seconds_since_tick,
        ready=shard.ready,
        standing_by=shard.standing_by,
        problem=shard.watchdog.problem(),
        held_at=shard.watchdog.held_at(),
    )


def _hosted(
    begin: c.Begin, registry: Registry, on_failure: Callable[[str], None], on_trouble: Callable[[], None]
) -> Hosted:
    keys = Keys(begin.namespace, begin.partitions)
    durability = parse_durability(begin.durability)
    namespace = Namespace(keys, begin.secret, begin.partitions, begin.created_ms, durability)
    return host_shard(
        begin.settings, namespace, registry, connector(begin.url), on_failure=on_failure, on_trouble=on_trouble
    )
