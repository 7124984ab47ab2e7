"""Runs attempts and tells actors their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import StepDone, StepErred, StepHeld
from stepwell.actors.runner.order import StepOrder
from stepwell.actors.runner.threads import ThreadPool
from stepwell.core.clock import Clock
from stepwell.core.errors import StepTimeout
from stepwell.flow.attempt import copied_arguments, failure_of
from stepwell.flow.context import StepContext, running_step

logger = logging.getLogger("stepwell.runner")
GIVE_UP_SECONDS = 30.0
Outcome = StepDone | StepErred | StepHeld


class _Attempt:
    """One attempt under way; `then` is what was asked for meanwhile under the same path."""

    __slots__ = ("order", "ref", "task", "then")

    def __init__(self, order: StepOrder, ref: AnyRef) -> None:
        self.order = order
        self.ref = ref
        self.then: tuple[StepOrder, AnyRef] | None = None
        self.task: asyncio.Task[None] | None = None  # of an async body; kept here lest it be collected


class StepRunner:
    """See the package's docstring. `threads` bounds sync bodies at once. `start` and `stop` frame its life."""

    def __init__(self, clock: Clock, holdings: Holdings, threads: int) -> None:
        self._clock = clock
        self._holdings = holdings
        self._pool = ThreadPool(threads, "stepwell-step")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="stepwell-steps", daemon=True)
        self._lock = threading.Lock()
        self._attempts: dict[tuple[str, str], _Attempt] = {}
        self._asked: deque[_Attempt] = deque()
        self._armed = False
        self._closed = False
        self._became_idle: Callable[[], None] | None = None

    def begin(self) -> None:
        """Start the event loop's thread."""
        self._thread.start()

    @property
    def given_up(self) -> int:
        """Threads that hang in a step far beyond its timeout."""
        return self._pool.given_up

    @property
    def running(self) -> int:
        """Attempts under way."""
        return len(self._attempts)

    def start(self, order: StepOrder, ref: AnyRef) -> None:
        """Run an attempt; its outcome goes to `ref`. After `close_intake` nothing starts."""
        key = (order.context.execution_id, order.context.path)
        with self._lock:
            if self._closed:
                return
            current = self._attempts.get(key)
            if current is not None:
                if current.order.context.attempt == order.context.attempt:
                    current.ref = ref
                else:
                    current.then = (order, ref)
                return
            attempt = self._attempts[key] = _Attempt(order, ref)
        if order.call.step.is_async:
            self._asked.append(attempt)
            if not self._armed:
                self._armed = True
                self.soon(self._take_asked)
        else:
            self._pool.submit(lambda: self._run_sync(attempt))

    def adopt(self, execution_id: str, path: str, attempt: int, ref: AnyRef) -> bool:
        """Send the outcome of an attempt that runs to `ref` from now on; False if that attempt does not run."""
        with self._lock:
            current = self._attempts.get((execution_id, path))
            if current is None or current.order.context.attempt != attempt:
                return False
            current.ref = ref
            return True

    def close_intake(self, became_idle: Callable[[], None]) -> None:
        """Start nothing any more; call back (on any thread) when the last attempt has ended."""
        with self._lock:
            self._closed = True
            self._became_idle = became_idle
            idle = not self._attempts
        if idle:
            became_idle()

    def stop(self, timeout: float) -> None:
        """Cancel async attempts that still run and end the loop; outcomes are dropped."""
        with self._lock:
            self._closed = True
        self._pool.stop()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._wind_down(timeout), self._loop)
            self._thread.join(timeout + 1.0)

    async def _wind_down(self, timeout: float) -> None:
        with self._lock:
            tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        await self._loop.shutdown_asyncgens()
        self._loop.stop()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _take_asked(self) -> None:
        self._armed = False
        while self._asked:
            attempt = self._asked.popleft()
            attempt.task = self._loop.create_task(self._run_async(attempt))

    async def _run_async(self, attempt: _Attempt) -> None:
        order = attempt.order
        step = order.call.step
        if not self._may_begin(attempt):
            return
        started = self._clock.now_ms()
        timeout = step.timeout
        running_step.set(self._context(order))
        limit = None if timeout is None else asyncio.timeout(timeout)
        try:
            args, kwargs = copied_arguments(order.call)
            if limit is None:
                raw = step.encode_result(await step.fn(*args, **kwargs))
            else:
                async with limit:
                    value = await step.fn(*args, **kwargs)
                raw = step.encode_result(value)
        except BaseException as raised:
            if self._closed and isinstance(raised, asyncio.CancelledError):
                self._finish(attempt, None)
                return
            error: BaseException = raised
            if limit is not None and isinstance(raised, TimeoutError) and limit.expired():
                error = StepTimeout(f"attempt took longer than {timeout:g} s")
            self._finish(attempt, self._erred(order, started, error))
        else:
            self._finish(attempt, StepDone(order.context.path, order.context.attempt, started, raw))

    def _run_sync(self, attempt: _Attempt) -> None:
        order = attempt.order
        step = order.call.step
        if not self._may_begin(attempt):
            return
        started = self._clock.now_ms()
        watch = None if step.timeout is None else _Watch(self, order, step.timeout)
        outcome: Outcome
        try:
            args, kwargs = copied_arguments(order.call)
            context = contextvars.copy_context()
            context.run(running_step.set, self._context(order))
            raw = step.encode_result(context.run(step.fn, *args, **kwargs))
        except BaseException as error:
            outcome = self._erred(order, started, error)
        else:
            outcome = StepDone(order.context.path, order.context.attempt, started, raw)
        if watch is not None:
            watch.ended()
        self._finish(attempt, outcome)

    def _may_begin(self, attempt: _Attempt) -> bool:
        """The last look before a body starts: not after the intake is closed, not on a lease that may have lapsed."""
        order = attempt.order
        if self._closed:
            self._finish(attempt, None)
            return False
        if not self._holdings.may_act(order.partition):
            self._finish(attempt, StepHeld(order.context.path, order.context.attempt))
            return False
        return True

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call it on the loop's thread; after `stop` nothing happens."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and what it was to do is of no use any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _erred(self, order: StepOrder, started: int, error: BaseException) -> StepErred:
        step = order.call.step
        judged = failure_of(error, step)
        context = order.context
        logger.debug("attempt %d of %s %s raised", context.attempt, context.execution_id, context.path, exc_info=error)
        return StepErred(
            context.path, context.attempt, started, judged.error, judged.retryable, step.retry, judged.retry_after
        )

    def _context(self, order: StepOrder) -> StepContext:
        timeout = order.call.step.timeout
        if timeout is None:
            return order.context
        return dataclasses.replace(order.context, deadline=self._clock.monotonic() + timeout)

    def _finish(self, attempt: _Attempt, outcome: Outcome | None) -> None:
        context = attempt.order.context
        with self._lock:
            self._attempts.pop((context.execution_id, context.path), None)
            ref, then = attempt.ref, attempt.then
            idle = self._became_idle if self._closed and not self._attempts else None
        if outcome is not None:
            ref.tell(outcome)
        if then is not None:
            self.start(*then)
        if idle is not None:
            idle()


class _Watch:
    """Notices a sync body that goes on long after its timeout, and frees its slot."""

    def __init__(self, runner: StepRunner, order: StepOrder, timeout: float) -> None:
        self._runner = runner
        self._order = order
        self._lock = threading.Lock()
        self._over = False
        self._given_up = False
        self._handle: asyncio.TimerHandle | None = None
        runner.soon(self._arm, timeout + GIVE_UP_SECONDS)

    def _arm(self, delay: float) -> None:
        with self._lock:
            if not self._over:
                self._handle = self._runner._loop.call_later(delay, self._give_up)

    def _give_up(self) -> None:
        with self._lock:
            if self._over:
                return
            self._given_up = self._runner._pool.give_up_one()
        context = self._order.context
        logger.warning(
            "step %s of execution %s hangs %g s beyond its timeout; a thread can't be stopped, its execution waits on",
            context.path,
            context.execution_id,
            GIVE_UP_SECONDS,
        )

    def ended(self) -> None:
        with self._lock:
            self._over = True
            if self._given_up:
                self._runner._pool.came_back()
        if self._handle is not None:
            self._runner.soon(self._handle.cancel)
