"""Runs bodies: async ones on an event loop of its own thread, sync ones on threads, isolated ones in processes."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable

from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.holdings import Holdings
from stepwell.actors.messages import StepDone
from stepwell.actors.runner.attempts import Attempt, Attempts, Outcome
from stepwell.actors.runner.gates import Gates
from stepwell.actors.runner.loopwatch import LoopWatch
from stepwell.actors.runner.order import StepOrder
from stepwell.actors.runner.outcome import context_with_deadline, erred
from stepwell.actors.runner.processes import ProcessPool
from stepwell.actors.runner.threads import ThreadPool
from stepwell.actors.runner.watch import Watch
from stepwell.actors.store_events import StepOverran, StoreObserver
from stepwell.actors.tracing import Tracing
from stepwell.core.clock import Clock
from stepwell.core.errors import StepTimeout
from stepwell.core.limits import Limits
from stepwell.flow.attempt import copied_arguments
from stepwell.flow.context import running_step
from stepwell.flow.operations import StepCall
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.runner")
USUAL_LIMITS = Limits()


class StepRunner:
    """See the package's docstring. `threads` bounds sync bodies at once, `limits` all others. `begin` and `stop` frame
    its life."""

    def __init__(
        self,
        clock: Clock,
        holdings: Holdings,
        observer: StoreObserver,
        threads: int,
        box: BlackBox = NO_BOX,
        limits: Limits = USUAL_LIMITS,
        tracing: Tracing | None = None,
    ) -> None:
        self._clock = clock
        self._box = box
        self._attempts = Attempts(holdings, self._submit, Gates(limits.steps, limits.processes), box)
        self._pool = ThreadPool(threads, "stepwell-step")
        self._tracing = tracing
        self._observer = observer
        traces = None if tracing is None else tracing.setup
        self._processes = ProcessPool(clock, self._attempts, limits.processes, self._submit_inside, traces)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="stepwell-steps", daemon=True)
        self.look = LoopWatch(self._loop, self._thread, self.soon, self.at_work).look
        self._asked: deque[Attempt] = deque()
        self._armed = False
        self._over = False
        self.start = self._attempts.ask
        self.adopt = self._attempts.adopt
        self.withdraw = self._attempts.withdraw
        self.settle = self._attempts.settle
        self.lose = self._attempts.lose
        self.keep = self._attempts.keep

    def begin(self) -> None:
        """Start the event loop's thread."""
        self._thread.start()

    @property
    def given_up(self) -> int:
        """Threads that hang in a step far beyond its timeout."""
        return self._pool.given_up

    @property
    def bodies(self) -> dict[str, int]:
        """How many bodies run now, by place."""
        return self._attempts.bodies

    @property
    def set_apart(self) -> tuple[int, int]:
        """Attempts that may have killed a shard: how many run in processes of their own, how many wait for one."""
        return self._attempts.set_apart

    @property
    def running(self) -> int:
        """Attempts under way."""
        return self._attempts.active

    def at_work(self) -> list[Attempt]:
        """The attempts whose bodies run now. For any thread."""
        return [each for each in self._attempts.under_way() if each.began_at]

    def close_intake(self, became_idle: Callable[[], None]) -> None:
        """Start nothing any more; call back (on any thread) when the last attempt has ended."""
        self._attempts.close(became_idle)

    def cut_short(self) -> None:
        """Wait no longer for the attempts that still run: their actors are told, and what comes of them is dropped."""
        self._attempts.cut_short()

    def cut_off(self) -> set[int]:
        """Begin nothing, and leave what runs as a crash does, in the black box for good. The partitions it is of."""
        return self._attempts.cut_off()

    def stop(self, timeout: float) -> None:
        """Cancel async attempts that still run and end the loop; outcomes are dropped."""
        self._attempts.close(lambda: None)
        self._pool.stop()
        self._processes.stop(timeout)
        if self._thread.is_alive():
            self.soon(lambda: self._loop.create_task(self._wind_down(timeout)))
            self._thread.join(timeout + 1.0)

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call it on the loop's thread; after `stop` nothing happens."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            if not self._over:
                raise

    async def _wind_down(self, timeout: float) -> None:
        tasks = [attempt.body for attempt in self._attempts.under_way() if isinstance(attempt.body, asyncio.Task)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        await self._loop.shutdown_asyncgens()
        self._over = True
        self._loop.stop()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._box.loop_is_here()
        while not self._over:
            try:
                self._loop.run_forever()
            except BaseException as error:
                # asyncio lets SystemExit and KeyboardInterrupt of any task out; whoever awaits that task gets it too.
                told = "a task of a step raised %s; the step loop goes on"
                say(logger, "PartErred", told, type(error).__name__, traceback=error, part="steps")
        self._loop.close()

    def _submit(self, attempt: Attempt) -> bool:
        if attempt.order.isolated:
            return self._processes.submit(attempt)
        return self._submit_inside(attempt)

    def _submit_inside(self, attempt: Attempt) -> bool:
        if not attempt.order.call.step.is_async:
            return self._pool.submit(lambda: self._run_sync(attempt), attempt.order.context.flow)
        self._asked.append(attempt)
        if not self._armed:
            self._armed = True
            self.soon(self._take_asked)
        return True

    def _take_asked(self) -> None:
        self._armed = False
        while self._asked:
            attempt = self._asked.popleft()
            attempt.body = asyncio.Task(self._run_async(attempt), loop=self._loop, name=attempt.order.context.path)

    async def _run_async(self, attempt: Attempt) -> None:
        started = self._clock.now_ms()
        if not self._attempts.may_begin(attempt, started, "loop"):
            return
        order = attempt.order
        step = order.call.step
        timeout = step.timeout
        context = context_with_deadline(order)
        running_step.set(context)
        if self._tracing is not None:
            self._tracing.enter(order.context)
        # By the very deadline that the body reads: the loop's clock is `time.monotonic`, too.
        limit = None if timeout is None else asyncio.timeout_at(context.deadline)
        outcome: Outcome | None
        lasted = 0.0
        try:
            body = self._box.resumed(attempt.slot, _called(order.call))
            if limit is None:
                raw = await body
            else:
                async with limit:
                    raw = await body
        except BaseException as raised:
            error: BaseException = raised
            if limit is not None and isinstance(raised, TimeoutError) and limit.expired():
                error = StepTimeout(f"attempt took longer than {timeout:g} s")
            elif limit is not None:
                lasted = self._lasted(limit, timeout)
            cut_short = self._attempts.closed and isinstance(raised, asyncio.CancelledError)
            outcome = None if cut_short else erred(order, started, error, self._clock)
        else:
            ended, queued = self._clock.now_ms(), max(0, started - order.ready_at)
            outcome = StepDone(order.context.path, order.context.attempt, started, ended, raw, queued)
            if limit is not None:
                lasted = self._lasted(limit, timeout)
        self._attempts.finish(attempt, outcome)
        self._look_at(order, lasted)

    def _lasted(self, limit: asyncio.Timeout, timeout: float | None) -> float:
        until = limit.when()
        return 0.0 if until is None or timeout is None else self._loop.time() - until + timeout

    def _look_at(self, order: StepOrder, lasted: float) -> None:
        """It held up the loop, did not end when it was cancelled, or was late on its thread? That is told once it has
        its outcome, so that who listens can't keep it from that, nor end the thread."""
        timeout, of = order.call.step.timeout, order.context
        if timeout is None or lasted <= timeout:
            return
        try:
            place = of.execution_id, of.flow, of.step, of.path, of.attempt, of.idempotency_key
            self._observer(StepOverran(*place, lasted, timeout, of.trace_id))
        except Exception as error:
            told = "step %s of execution %s overran its timeout, which could not be told"
            say(logger, "PartErred", told, of.path, of.execution_id, traceback=error, part="steps", of=of.log_fields)

    def _run_sync(self, attempt: Attempt) -> None:
        started = self._clock.now_ms()
        if not self._attempts.may_begin(attempt, started, "thread"):
            return
        order = attempt.order
        step = order.call.step
        timeout = step.timeout
        watch = None if timeout is None else Watch(self._loop, self.soon, self._pool, order.context, timeout)
        outcome: Outcome
        try:
            self._box.on_thread(attempt.slot)
            args, kwargs = copied_arguments(order.call)
            context = contextvars.copy_context()
            context.run(running_step.set, context_with_deadline(order))
            if self._tracing is not None:
                context.run(self._tracing.enter, order.context)
            raw = step.encode_result(context.run(step.fn, *args, **kwargs))
        except BaseException as error:
            outcome = erred(order, started, error, self._clock)
        else:
            ended, queued = self._clock.now_ms(), max(0, started - order.ready_at)
            outcome = StepDone(order.context.path, order.context.attempt, started, ended, raw, queued)
        lasted = 0.0 if watch is None else watch.ended()
        self._attempts.finish(attempt, outcome)
        self._look_at(order, lasted)


async def _called(call: StepCall[object]) -> bytes:
    """The body's encoded result."""
    args, kwargs = copied_arguments(call)
    return call.step.encode_result(await call.step.fn(*args, **kwargs))
